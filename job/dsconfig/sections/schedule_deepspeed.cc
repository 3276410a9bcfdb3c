// The parameters of DeepSpeed's five schedules.
#include "common/text.h"
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {

using nlohmann::json;

namespace {

/// warmup_num_steps and warmup_type, which three of the schedules have.
void warmup_phase(const Source& in, const Length& length, SchedulerConfig& scheduler, Report& out) {
  const std::string path = scheduler_key("warmup_num_steps");
  if (const json* warmup = in.literal(path)) {
    scheduler.warmup_steps = warmup->get<int64_t>();
    const auto asked = length.warmup_asked ? length.warmup_steps : std::nullopt;
    if (asked && *asked != scheduler.warmup_steps)
      out.mismatch(path, std::to_string(scheduler.warmup_steps), length.warmup_origin,
                   std::to_string(*asked));
  } else if (in.is_auto(path) || length.warmup_asked) {
    const auto& steps = length.warmup_steps;
    if (!steps) out.incomplete();
    scheduler.warmup_steps = steps.value_or(0);
    if (steps) out.origin(path, std::to_string(*steps), length.warmup_origin);
  } else {
    scheduler.warmup_steps = in.value<int64_t>(path);
    out.origin(path, std::to_string(scheduler.warmup_steps), kDeepSpeedDefault);
  }
  scheduler.log_warmup = in.value<std::string>(scheduler_key("warmup_type")) == "log";
}

/// Compares the file's length with the run's, as Trainer does
/// (HfTrainerDeepSpeedConfig.trainer_config_finalize).
void check_length(const std::string& path, int64_t given, const Length& length, Report& out) {
  if (length.total_steps && *length.total_steps != given)
    out.mismatch(path, std::to_string(given), length.total_origin,
                 std::to_string(*length.total_steps));
}

/// total_num_steps. Default: the run's length.
void total_num_steps(const Source& in, const Length& length, SchedulerConfig& scheduler,
                     Report& out) {
  const std::string total = scheduler_key("total_num_steps");
  if (const json* value = in.literal(total)) {
    scheduler.total_steps = value->get<int64_t>();
    check_length(total, scheduler.total_steps, length, out);
  } else if (length.total_steps) {
    out.origin(total, std::to_string(*length.total_steps), "total steps of the run");
  } else if (!in.is_auto(total)) {
    out.absent(
        {total, scheduler.type + " ends with the run: the job has to set the number of steps",
         "spec.training.maxSteps, or numTrainEpochs and the rows of its data"},
        scheduler.type + " needs total_num_steps",
        "add it, write \"auto\", or give training.maxSteps");
  }
  if (scheduler.total_steps > 0 && scheduler.total_steps < scheduler.warmup_steps)
    out.warning(total,
                "total_num_steps " + std::to_string(scheduler.total_steps) +
                    " is less than warmup_num_steps " + std::to_string(scheduler.warmup_steps),
                "the rate never reaches its maximum");
}

void cycle_of(const Source& in, const Length& length, ResolvedConfig& config, Report& out) {
  SchedulerConfig& scheduler = config.scheduler;
  OneCycleConfig& cycle = scheduler.one_cycle;
  scheduler.min_lr = in.value(scheduler_key("cycle_min_lr"), 0.0);
  scheduler.max_lr = in.value(scheduler_key("cycle_max_lr"), 0.0);
  cycle.second_size = in.value<double>(scheduler_key("cycle_second_step_size"), cycle.first_size);
  cycle.second_stairs =
      in.value<int64_t>(scheduler_key("cycle_second_stair_count"), cycle.first_stairs);
  warn_of_cycle(scheduler_key("cycle_first_step_size"), cycle.first_size + cycle.second_size,
                length, out);
  const bool wanted = in.value<bool>(scheduler_key("cycle_momentum"));
  cycle.momentum = wanted && takes(config.optimizer.kind, "betas") &&
                   !descriptor_of(config.optimizer.kind).own_momentum;
  if (wanted && !cycle.momentum)
    out.warning(scheduler_key("cycle_momentum"),
                "no effect: " + name_of(config.optimizer) + " has no betas for OneCycle to write",
                "set cycle_momentum to false");
  cycle.momentum = cycles_momentum("OneCycle", cycle.momentum, config.optimizer, out);
}

}  // namespace

void resolve_deepspeed_schedule(const Source& in, const Length& length, ResolvedConfig& config,
                                Report& out) {
  SchedulerConfig& scheduler = config.scheduler;
  const std::string& type = scheduler.type;
  const double lr = config.optimizer.lr;
  scheduler.total_steps = length.total_steps.value_or(0);
  scheduler.max_lr = lr;
  if (type == "OneCycle") return cycle_of(in, length, config, out);
  if (type == "LRRangeTest") {
    scheduler.min_lr = in.value<double>(scheduler_key("lr_range_test_min_lr"));
    return;
  }
  warmup_phase(in, length, scheduler, out);
  if (type == "WarmupCosineLR") return total_num_steps(in, length, scheduler, out);
  scheduler.min_lr = in.value<double>(scheduler_key("warmup_min_lr"));
  if (in.is_auto(scheduler_key("warmup_min_lr")))
    out.origin(scheduler_key("warmup_min_lr"), "0", "Hugging Face's rule");
  // If it is absent: in 0.19, WarmupLR takes the optimizer's rate and WarmupDecayLR 0.001 (in 0.13
  // both 0.001).
  scheduler.max_lr =
      matched(in, out, scheduler_key("warmup_max_lr"), {in.args.learning_rate, "learningRate", lr},
              type == "WarmupLR" ? lr : 1e-3);
  if (type == "WarmupDecayLR") total_num_steps(in, length, scheduler, out);
}

}  // namespace dsj::dsconfig
