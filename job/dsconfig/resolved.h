// What the engine runs by: every value of ds_config decided, no "auto" left. Plain data with
// DeepSpeed 0.19's defaults.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "job/dsconfig/data_efficiency_config.h"
#include "job/dsconfig/offload_config.h"
#include "job/dsconfig/optimizers.h"
#include "job/dsconfig/scheduler_config.h"

namespace dsj::dsconfig {

enum class Precision { Fp32, Bf16, Fp16 };
const char* name_of(Precision precision);  ///< "fp32", "bf16", "fp16"

/// torch_autocast, and amp O1: parameters stay fp32, and matrix products run in 16 bits.
struct AutocastConfig {
  Precision products = Precision::Fp32;  ///< fp32: off
  /// torch_autocast.lower_precision_safe_modules: classes whose parameters travel in that type at
  /// ZeRO stages 1 to 3 (job/plan/autocast_plan.h). Only those that a model here has.
  std::vector<std::string> safe_modules;
  bool on() const { return products != Precision::Fp32; }
};

/// fp16's factor on the loss; engine/optim/loss_scaler.h has the rules.
struct LossScaleConfig {
  double fixed = 0;                     ///< fp16.loss_scale; 0: dynamic, by the fields below
  double initial = 65536;               ///< 2^initial_scale_power
  int64_t window = 1000;                ///< steps without an overflow before it doubles
  int64_t hysteresis = 2;               ///< overflows before it halves
  bool consecutive_hysteresis = false;  ///< a step without an overflow forgives earlier ones
  double minimum = 1;
  double maximum = 1e300;  ///< amp.max_loss_scale
  /// torch's GradScaler and apex instead of DeepSpeed's class: a window counts this step, and the
  /// update divides by the scale that the loss had.
  bool like_torch = false;
};

/// Where gradient averaging divides by the world size (engine/optim/averaging.h).
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
  int64_t hpz_partition_size = 1;  ///< stage 3: ranks that share a second copy; 0, 1: none
  int64_t mics_shard_size = -1;    ///< stage 3: ranks that share all state; below 1: all ranks
  // ZeRO++: what travels at stage 3 as codes (job/wire_blocks.h).
  bool quantized_weights = false;         ///< parameters on their way to their use
  bool quantized_frozen_weights = false;  ///< frozen shards are kept as codes, too
  bool quantized_gradients = false;
  bool overlap_comm = false;
};

/// When something is done between the steps of a run.
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
  std::vector<std::string> prof_ops;  ///< without prof_all: these operations only
  bool verbose = false;               ///< one line per call
  bool debug = false;                 ///< records are split by their purpose
};

struct FlopsProfilerConfig {
  bool enabled = false;
  double recompute_fwd_factor = 0;  ///< forwards per step that gradient checkpointing adds
  int64_t profile_step = 1;
  int64_t module_depth = -1;  ///< 0 the model, 1 its units, 2 their parts; -1: the deepest
  int64_t top_modules = 1;
  bool detailed = true;
  std::string output_file;  ///< empty: printed
};

/// What watches a run without changing it.
struct ObserveConfig {
  bool wall_clock_breakdown = false;  ///< also switched on by the FLOPS profiler
  bool memory_breakdown = false;
  bool dump_state = false;
  MonitorConfig tensorboard, csv;
  CommsLoggerConfig comms;
  FlopsProfilerConfig flops;
};

/// Which evaluation was the best, and what follows from it: Hugging Face's rules. The metric is the
/// evaluation's loss.
struct BestConfig {
  bool load = false;     ///< the model of the best checkpoint is exported
  bool save = false;     ///< a checkpoint follows each evaluation that is the best so far
  bool greater = false;  ///< a larger loss counts as better (greater_is_better, taken literally)
  int64_t patience = 0;  ///< evaluations in a row without an improvement that end the run; 0: none
  double threshold = 0;  ///< an improvement is larger than this
  /// Whether a run follows it at all.
  bool on() const { return load || save || patience > 0; }
};

/// Evaluation: forward passes over rows that are not trained on.
struct EvalConfig {
  Cadence when;
  double delay = 0;  ///< steps, or epochs where `when` goes by them, before the first one
  BestConfig best;
  bool on_start = false;
  int64_t micro_batch_size = 8;  ///< per rank
  int64_t split_rows = 0;        ///< held out: so many first rows of the training data
};

struct ResolvedConfig {
  /// Rows per optimizer step: micro x accumulation x world / sequence_parallel_size.
  int64_t train_batch_size = 0;
  int64_t micro_batch_size = 0;
  int64_t gradient_accumulation_steps = 1;
  int64_t sequence_parallel_size =
      1;  ///< ranks that share a micro-batch: each has a part of its tokens
  std::vector<int64_t> elastic_world_sizes;  ///< that the batch fits; empty: no elasticity
  double gradient_clipping = 1.0;            ///< L2 norm over all parameters; 0: off
  Precision precision = Precision::Fp32;     ///< of parameters, and of what passes between units
  AutocastConfig autocast;                   ///< with fp32 only
  bool bf16_check_grad_overflow = true;
  LossScaleConfig loss_scale;  ///< where scales_loss()
  AveragingConfig averaging;
  bool sparse_gradients = false;  ///< an embedding's gradient travels as the rows that have one
  Precision communication_dtype = Precision::Fp32;
  Precision grad_accum_dtype = Precision::Fp32;
  ZeroConfig zero;
  Offload offload;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  DataEfficiencyConfig data_efficiency;
  int64_t total_steps = 0;            ///< optimizer steps of the run
  int64_t steps_per_epoch = 0;        ///< optimizer steps; 0: the number of rows is unknown
  int64_t steps_per_print = 0;        ///< 0: off
  bool dataloader_drop_last = false;  ///< an incomplete last batch is left out
  /// Trainer's: an epoch leaves out the rows that do not fill a micro-batch of every rank.
  bool drop_last_micro_batches = false;
  bool load_universal = false;  ///< of a DeepSpeed folder named to resume from: its universal tag
  /// activation_checkpointing: the layer inputs that gradient checkpointing keeps leave the device,
  /// for host memory, or for a file where the device is the host.
  bool cpu_checkpointing = false;
  Cadence logging{Cadence::Kind::Steps, 1};
  bool logging_first_step = false;
  Cadence save{Cadence::Kind::Steps, 500};
  EvalConfig eval;
  ObserveConfig observe;
  MuonConfig muon;                           ///< read where the optimizer is Muon
  Precision master_dtype = Precision::Fp32;  ///< of the masters: fp32, or the model's
  Precision state_dtype = Precision::Fp32;   ///< of the optimizer's states: fp32, or the masters'
};

/// How many micro-batches run side by side: ranks, or groups of ranks that share one.
inline int data_ranks(const ResolvedConfig& config, int world) {
  return static_cast<int>(std::max<int64_t>(1, world / config.sequence_parallel_size));
}
/// Whether a run has checkpoints besides the one that a stop makes.
inline bool saves(const ResolvedConfig& config) {
  return config.save.kind != Cadence::Kind::Never || config.eval.best.save;
}
/// The type in which matrix products read their factors.
inline Precision product_type(const ResolvedConfig& config) {
  return config.autocast.on() ? config.autocast.products : config.precision;
}
/// Whether the loss has a factor: gradients pass through fp16.
inline bool scales_loss(const ResolvedConfig& config) {
  return product_type(config) == Precision::Fp16;
}

}  // namespace dsj::dsconfig
