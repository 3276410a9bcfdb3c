// What the engine runs by: every value of ds_config decided, no "auto" left. Plain data; the
// defaults are DeepSpeed 0.19's.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dsj::dsconfig {

enum class Precision { Fp32, Bf16, Fp16 };

/// fp16's factor on the loss (optim/loss_scaler.h has the rules).
struct LossScaleConfig {
  double fixed = 0;                     ///< fp16.loss_scale; 0: dynamic, by the rest
  double initial = 65536;               ///< 2^initial_scale_power
  int64_t window = 1000;                ///< steps without an overflow until it doubles
  int64_t hysteresis = 2;               ///< overflows until it halves
  bool consecutive_hysteresis = false;  ///< a step without an overflow forgives the ones before
  double minimum = 1;
};

/// Where the division by the world size happens when gradients are averaged (zero/averaging.h).
struct AveragingConfig {
  bool mean = true;       ///< gradient_allreduce_op; false: the sum over ranks
  bool prescale = false;  ///< prescale_gradients
  double predivide = 1;   ///< gradient_predivide_factor
};

struct ZeroConfig {
  int stage = 0;
  int64_t reduce_bucket_size = 500'000'000;     ///< elements per gradient reduction
  int64_t allgather_bucket_size = 500'000'000;  ///< stages 1, 2: elements per parameter all-gather
  int64_t prefetch_bucket_size = 50'000'000;    ///< stage 3: elements gathered ahead of use
  int64_t param_persistence_threshold = 100'000;    ///< stage 3: parameters up to this stay whole
  int64_t model_persistence_threshold = INT64_MAX;  ///< stage 3: cap on the sum of those
  int64_t max_live_parameters = 1'000'000'000;      ///< stage 3: gathered elements alive at a time
  int64_t max_reuse_distance = 1'000'000'000;       ///< stage 3: not released if used again within
  bool overlap_comm = false;
};

enum class OptimizerKind {
  Adam,  ///< Adam and AdamW: decoupled_weight_decay says which
  Sgd,
  Adagrad,
  RMSprop,
  Lion,
  Lamb,
  Adadelta,
  Adamax,
  NAdam,
  RAdam,
  Asgd,
  Rprop,
};

/// The hyper-parameters of every kind; a kind reads those that its formula has
/// (engine/optim/optimizer.h). The values here are Adam's defaults; resolve() writes each kind's
/// own.
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::Adam;
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool decoupled_weight_decay = true;  ///< Adam, NAdam, RAdam; false: L2 added to the gradient
  bool bias_correction = true;         ///< Adam, LAMB
  bool maximize = false;               ///< torch's names: the gradient is negated
  double momentum = 0.0;               ///< SGD, RMSprop
  double dampening = 0.0;              ///< SGD
  bool nesterov = false;               ///< SGD
  double alpha = 0.99;                 ///< RMSprop's average; ASGD's power of the step
  bool centered = false;               ///< RMSprop
  double rho = 0.9;                    ///< Adadelta
  double lr_decay = 0.0;               ///< Adagrad
  double initial_accumulator = 0.0;    ///< Adagrad
  double momentum_decay = 4e-3;        ///< NAdam
  double lambd = 1e-4, t0 = 1e6;       ///< ASGD
  double eta_minus = 0.5, eta_plus = 1.2, step_min = 1e-6, step_max = 50;  ///< Rprop
  double min_coeff = 0.01, max_coeff = 10.0;                               ///< LAMB
  bool eps_inside_sqrt = false;                                            ///< LAMB
};

/// "AdamW", "SGD", ...: as a ds_config names it.
std::string name_of(const OptimizerConfig& optimizer);

/// lr as a function of the number of optimizer steps already done (optim/lr_schedule.h).
struct SchedulerConfig {
  /// "constant", "WarmupLR", "WarmupDecayLR" (DeepSpeed's), "constant_with_warmup", "linear",
  /// "cosine" (Hugging Face's).
  std::string type = "constant";
  double min_lr = 0.0;       ///< warmup_min_lr
  double max_lr = 0.0;       ///< warmup_max_lr, or the base lr of Hugging Face's
  int64_t warmup_steps = 0;  ///< warmup_num_steps
  int64_t total_steps = 0;   ///< total_num_steps
  bool log_warmup = true;    ///< warmup_type: log (DeepSpeed's default) or linear
};

struct ResolvedConfig {
  int64_t train_batch_size = 0;  ///< rows per optimizer step: micro x accumulation x world
  int64_t micro_batch_size = 0;
  int64_t gradient_accumulation_steps = 1;
  double gradient_clipping = 1.0;  ///< global L2 norm; 0: off
  Precision precision = Precision::Fp32;
  bool bf16_check_grad_overflow = true;
  LossScaleConfig loss_scale;  ///< read in fp16 only
  AveragingConfig averaging;
  Precision communication_dtype = Precision::Fp32;
  Precision grad_accum_dtype = Precision::Fp32;
  ZeroConfig zero;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  int64_t total_steps = 0;            ///< optimizer steps of the run
  int64_t steps_per_print = 0;        ///< 0: off
  bool dataloader_drop_last = false;  ///< an epoch ends before an incomplete batch
};

/// For the "resolved" event, status and dsj plan.
nlohmann::json to_json(const ResolvedConfig& config);

}  // namespace dsj::dsconfig
