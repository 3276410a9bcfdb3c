// The engine's configuration: every value of ds_config resolved, no "auto" left. Plain data with
// DeepSpeed 0.19's defaults.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "job/dsconfig/config/data_efficiency_config.h"
#include "job/dsconfig/config/offload_config.h"
#include "job/dsconfig/config/optimizers.h"
#include "job/dsconfig/config/scheduler_config.h"

namespace dsj::dsconfig {

enum class Precision { Fp32, Bf16, Fp16 };
const char* name_of(Precision precision);  ///< "fp32", "bf16", "fp16"

/// torch_autocast, and amp O1: parameters stay in fp32, matrix products run in 16 bits.
struct AutocastConfig {
  Precision products = Precision::Fp32;  ///< fp32: off
  /// torch_autocast.lower_precision_safe_modules: classes whose parameters are sent in that type at
  /// ZeRO stages 1 to 3 (job/plan/autocast_plan.h). Only classes that models here contain.
  std::vector<std::string> safe_modules;
  bool on() const { return products != Precision::Fp32; }
};

/// The loss scale of fp16; engine/optim/loss_scaler.h has the rules.
struct LossScaleConfig {
  double fixed = 0;                     ///< fp16.loss_scale; 0: dynamic, see the next fields
  double initial = 65536;               ///< 2^initial_scale_power
  int64_t window = 1000;                ///< steps without an overflow before it doubles
  int64_t hysteresis = 2;               ///< overflows before it halves
  bool consecutive_hysteresis = false;  ///< a step without an overflow resets the count
  double minimum = 1;
  double maximum = 1e300;  ///< amp.max_loss_scale
  /// Behaves as torch's GradScaler and apex, not as DeepSpeed's class: a window includes this step,
  /// and the update divides by the scale that the loss had.
  bool like_torch = false;
};

/// Where gradient averaging divides by the world size (engine/optim/averaging.h).
struct AveragingConfig {
  bool mean = true;       ///< gradient_allreduce_op; false: sums over ranks
  bool prescale = false;  ///< prescale_gradients
  double predivide = 1;   ///< gradient_predivide_factor
};

struct ZeroConfig {
  int stage = 0;
  int64_t reduce_bucket_size = 500'000'000;     ///< elements per gradient reduction
  int64_t allgather_bucket_size = 500'000'000;  ///< stages 1, 2: elements per parameter all-gather
  int64_t prefetch_bucket_size = 50'000'000;    ///< stage 3: elements gathered ahead of use
  int64_t param_persistence_threshold = 100'000;    ///< stage 3: smaller parameters stay gathered
  int64_t model_persistence_threshold = INT64_MAX;  ///< stage 3: cap on the sum of those
  int64_t max_live_parameters = 1'000'000'000;      ///< stage 3: gathered elements alive at a time
  int64_t max_reuse_distance = 1'000'000'000;       ///< stage 3: kept if used again within
  int64_t hpz_partition_size = 1;  ///< stage 3: ranks that share a second copy; 0, 1: none
  int64_t mics_shard_size = -1;    ///< stage 3: ranks that share all state; below 1: all ranks
  // ZeRO++: messages of stage 3 that are sent as codes (job/wire_blocks.h).
  bool quantized_weights = false;         ///< parameters, when gathered for use
  bool quantized_frozen_weights = false;  ///< stores frozen shards as codes, too
  bool quantized_gradients = false;
  bool overlap_comm = false;
};

/// At which steps of a run an action happens.
struct Cadence {
  enum class Kind { Never, Steps, Epoch } kind = Kind::Never;
  int64_t every = 1;  ///< for Kind::Steps
  /// Whether it is due after `step` steps (from 1). If the run's last step cuts an epoch short, the
  /// epoch ends there, as in Hugging Face's loop.
  bool due(int64_t step, int64_t steps_per_epoch, int64_t total_steps) const;
  bool operator==(const Cadence&) const = default;
};

/// tensorboard or csv_monitor.
struct MonitorConfig {
  bool enabled = false;
  std::string output_path;  ///< relative to the current directory; files are in PATH/NAME/
  std::string job_name = "DeepSpeedJobName";
};

struct CommsLoggerConfig {
  bool enabled = false;
  bool prof_all = true;
  std::vector<std::string> prof_ops;  ///< if not prof_all: only these operations
  bool verbose = false;               ///< one line per call
  bool debug = false;                 ///< splits records by their purpose
};

struct FlopsProfilerConfig {
  bool enabled = false;
  double recompute_fwd_factor = 0;  ///< forward passes per step that gradient checkpointing adds
  int64_t profile_step = 1;
  int64_t module_depth = -1;  ///< 0: the model, 1: its units, 2: their parts; -1: the deepest
  int64_t top_modules = 1;
  bool detailed = true;
  std::string output_file;  ///< empty: standard output
};

/// Settings that observe a run without changing it.
struct ObserveConfig {
  bool wall_clock_breakdown = false;  ///< also switched on by the FLOPS profiler
  bool memory_breakdown = false;
  bool dump_state = false;
  MonitorConfig tensorboard, csv;
  CommsLoggerConfig comms;
  FlopsProfilerConfig flops;
};

/// Which evaluation is the best, and what follows from it, by Hugging Face's rules. The metric is
/// the evaluation loss.
struct BestConfig {
  bool load = false;     ///< exports the model of the best checkpoint
  bool save = false;     ///< saves a checkpoint after each evaluation that is the best so far
  bool greater = false;  ///< a larger loss is better (greater_is_better, taken literally)
  int64_t patience = 0;  ///< so many evaluations in a row without improvement end the run; 0: never
  double threshold = 0;  ///< an improvement must exceed this
  /// Whether any of these is on.
  bool on() const { return load || save || patience > 0; }
};

/// Evaluation: forward passes over rows that are not used for training.
struct EvalConfig {
  Cadence when;
  double delay = 0;  ///< steps before the first one, or epochs if `when` counts epochs
  BestConfig best;
  bool on_start = false;
  int64_t micro_batch_size = 8;  ///< per rank
  int64_t split_rows = 0;        ///< rows at the start of the training data that are held out
};

struct ResolvedConfig {
  /// Rows per optimizer step: micro x accumulation x world / sequence_parallel_size.
  int64_t train_batch_size = 0;
  int64_t micro_batch_size = 0;
  int64_t gradient_accumulation_steps = 1;
  int64_t sequence_parallel_size =
      1;  ///< ranks that share a micro-batch, each with a part of the tokens
  std::vector<int64_t> elastic_world_sizes;  ///< that the batch fits; empty without elasticity
  double gradient_clipping = 1.0;            ///< L2 norm over all parameters; 0: off
  Precision precision = Precision::Fp32;     ///< of parameters, and of activations between units
  AutocastConfig autocast;                   ///< with fp32 only
  bool bf16_check_grad_overflow = true;
  LossScaleConfig loss_scale;  ///< if scales_loss()
  AveragingConfig averaging;
  bool sparse_gradients = false;  ///< an embedding sends the gradient rows that are not 0
  Precision communication_dtype = Precision::Fp32;
  Precision grad_accum_dtype = Precision::Fp32;
  ZeroConfig zero;
  Offload offload;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  DataEfficiencyConfig data_efficiency;
  int64_t total_steps = 0;            ///< optimizer steps of the run
  int64_t steps_per_epoch = 0;        ///< optimizer steps; 0 if the number of rows is unknown
  int64_t steps_per_print = 0;        ///< 0: off
  bool dataloader_drop_last = false;  ///< leaves out an incomplete last batch
  /// Trainer's: an epoch omits the rows that do not fill a micro-batch on every rank.
  bool drop_last_micro_batches = false;
  bool load_universal = false;  ///< resume from the universal tag of a DeepSpeed folder
  /// activation_checkpointing: moves the layer inputs that gradient checkpointing keeps to host
  /// memory, or to a file if the device is the host.
  bool cpu_checkpointing = false;
  Cadence logging{Cadence::Kind::Steps, 1};
  bool logging_first_step = false;
  Cadence save{Cadence::Kind::Steps, 500};
  EvalConfig eval;
  ObserveConfig observe;
  MuonConfig muon;                           ///< used if the optimizer is Muon
  Precision master_dtype = Precision::Fp32;  ///< of the master weights: fp32, or the model's type
  Precision state_dtype = Precision::Fp32;   ///< of the optimizer's states: fp32, or the masters'
};

/// The number of micro-batches that run in parallel: ranks, or groups of ranks that share one.
inline int data_ranks(const ResolvedConfig& config, int world) {
  return static_cast<int>(std::max<int64_t>(1, world / config.sequence_parallel_size));
}
/// Whether a run saves checkpoints besides the one at a stop.
inline bool saves(const ResolvedConfig& config) {
  return config.save.kind != Cadence::Kind::Never || config.eval.best.save;
}
/// The type of the operands of matrix products.
inline Precision product_type(const ResolvedConfig& config) {
  return config.autocast.on() ? config.autocast.products : config.precision;
}
/// Whether the loss is scaled: gradients pass through fp16.
inline bool scales_loss(const ResolvedConfig& config) {
  return product_type(config) == Precision::Fp16;
}

}  // namespace dsj::dsconfig
