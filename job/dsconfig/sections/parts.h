// The parts of resolve(), in the order in which they run. Each takes the source and the config so
// far, decides its part of the config and reports errors. read_fields() has already set plain
// values. Internal to dsconfig.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "job/dsconfig/read/source.h"

namespace dsj::dsconfig {

/// The path of a scheduler parameter.
inline std::string scheduler_key(const std::string& name) {
  return "scheduler.params." + name;
}

/// arguments.cc: checks the ranges of training arguments and refuses what is not built.
void check_arguments(const TrainingArgs& args, Report& out);
/// objective.cc: arguments of objectives and their conflicts. Part of check_arguments().
void check_objective(const TrainingArgs& args, Report& out);
/// objective.cc: keys of ds_config that conflict with the objective; after data efficiency.
void check_objective_rows(const Source& in, const ResolvedConfig& config, Report& out);
/// arguments.cc: maxSeqLength against the model's number of positions.
void check_row_length(const Source& in, Report& out);
/// batch.cc
void resolve_batch(const Source& in, ResolvedConfig& config, Report& out);
/// elasticity.cc: the batch, if the section is enabled.
void resolve_elasticity(const Source& in, ResolvedConfig& config, Report& out);
/// precision.cc: number types, the loss scale, gradient averaging.
void resolve_precision(const Source& in, ResolvedConfig& config, Report& out);
/// zero.cc
void resolve_zero(const Source& in, ResolvedConfig& config, Report& out);
/// optimizer.cc: also gradient_clipping.
void resolve_optimizer(const Source& in, ResolvedConfig& config, Report& out);
/// offload.cc; after ZeRO and the optimizer.
void resolve_offload(const Source& in, ResolvedConfig& config, Report& out);

/// master_types.cc: types of masters and optimizer states; after offload.
void resolve_master_types(const Source& in, ResolvedConfig& config, Report& out);

/// amp.cc: before the types of gradients.
void resolve_amp(const Source& in, ResolvedConfig& config, Report& out);
/// autocast.cc: torch_autocast; after the optimizer.
void resolve_autocast(const Source& in, ResolvedConfig& config, Report& out);

/// lora.cc: LoRA+, and conflicts of a base in 4 bits; after optimizer and types.
void resolve_adapters(const Source& in, ResolvedConfig& config, Report& out);

/// The length of the run and of its warm-up, from the arguments.
struct Length {
  std::optional<int64_t> total_steps;
  const char* total_origin = "";  ///< the argument that decides it
  bool warmup_asked = false;
  std::optional<int64_t> warmup_steps;  ///< nullopt if it is a ratio of an unknown total
  const char* warmup_origin = "";
};
/// steps.cc; after the batch.
Length resolve_steps(const Source& in, ResolvedConfig& config, Report& out);
/// optimizer.cc; warns if a stage saves no memory; after the steps.
void check_local_steps(const ResolvedConfig& config, Report& out);
/// Training rows, packed ones if rows are packed; nullopt if unknown.
std::optional<int64_t> training_rows(const Source& in);

/// schedule.cc; after the optimizer, because a schedule may enable momentum.
void resolve_scheduler(const Source& in, const Length& length, ResolvedConfig& config, Report& out);
/// schedule_deepspeed.cc, schedule_torch.cc: the numbers of a type.
void resolve_deepspeed_schedule(const Source& in, const Length& length, ResolvedConfig& config,
                                Report& out);
void resolve_torch_schedule(const Source& in, const Length& length, ResolvedConfig& config,
                            Report& out);
/// schedule_hugging_face.cc: the type that lrSchedulerType names; default: linear.
void resolve_hugging_face_schedule(const Source& in, const Length& length, ResolvedConfig& config,
                                   Report& out);
/// schedule.cc: refuses a run with a learning rate that is negative or not finite (rates.h).
/// Requires that all facts are known and nothing else was refused.
void check_rates(const ResolvedConfig& config, Report& out);
/// Warns if the run ends before a cycle of `steps` does; `path` decides the cycle's length.
void warn_of_cycle(const std::string& path, double steps, const Length& length, Report& out);
/// Whether `schedule` cycles the momentum, given that it is `wanted`. Reports an optimizer for
/// which this is not built.
bool cycles_momentum(const std::string& schedule, bool wanted, const OptimizerConfig& optimizer,
                     Report& out);

/// data_efficiency.cc: curriculum learning and random-LTD; after the steps.
void resolve_data_efficiency(const Source& in, ResolvedConfig& config, Report& out);

/// activation_checkpointing.cc: acts only with training.gradientCheckpointing.
void resolve_activation_checkpointing(const Source& in, const ResolvedConfig& config, Report& out);

/// best.cc: which evaluation is best, and early stopping; after the cadences.
void resolve_best(const Source& in, ResolvedConfig& config, Report& out);

/// sequence_parallel.cc: the world size, and conflicts of sequence parallelism; after all others.
void check_sequence_parallel(const Source& in, const ResolvedConfig& config, Report& out);

/// observe.cc: when to log, save, evaluate; monitors and profilers.
/// Steps between two evaluations, or a share of the run: evalSteps, default loggingSteps.
double evaluation_steps(const TrainingArgs& args);
void resolve_cadences(const Source& in, ResolvedConfig& config, Report& out);
void resolve_observe(const Source& in, ResolvedConfig& config, Report& out);

}  // namespace dsj::dsconfig
