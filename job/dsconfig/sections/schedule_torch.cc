// The parameters of torch.optim.lr_scheduler's types, as in torch 2.11's constructors.
#include "common/text.h"
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {

using nlohmann::json;

namespace {

/// CyclicLR and OneCycleLR set beta1, or the momentum of an optimizer that has one.
void momentum(double base, double most, const Source& in, ResolvedConfig& config, Report& out) {
  const std::string& type = config.scheduler.type;
  TorchScheduleConfig& torch = config.scheduler.torch;
  OptimizerConfig& optimizer = config.optimizer;
  torch.base_momentum = in.value<double>(scheduler_key("base_momentum"), base);
  torch.max_momentum = in.value<double>(scheduler_key("max_momentum"), most);
  torch.cycle_momentum = in.value<bool>(scheduler_key("cycle_momentum"));
  if (!torch.cycle_momentum) return;
  const bool none = descriptor_of(optimizer.kind).own_momentum;
  const bool momentum = !none && takes(optimizer.kind, "momentum");
  if (none || (!momentum && !takes(optimizer.kind, "betas"))) {
    out.error(scheduler_key("cycle_momentum"),
              name_of(optimizer) +
                  (none ? " has no momentum for " : " has neither momentum nor beta1 for ") + type +
                  " to cycle",
              "set cycle_momentum to false");
    return;
  }
  // The momentum buffer is needed even if the optimizer's own momentum is 0. RMSprop decides at
  // each step by its momentum.
  if (momentum && optimizer.momentum == 0) optimizer.momentum = torch.max_momentum;
  torch.cycle_momentum = cycles_momentum(type, true, optimizer, out);
}

void one_cycle(const Source& in, const Length& length, ResolvedConfig& config, Report& out) {
  SchedulerConfig& scheduler = config.scheduler;
  TorchScheduleConfig& torch = scheduler.torch;
  const int64_t epochs = in.value<int64_t>(scheduler_key("epochs"), 0);
  const int64_t each = in.value<int64_t>(scheduler_key("steps_per_epoch"), 0);
  scheduler.total_steps = in.value<int64_t>(scheduler_key("total_steps"), epochs * each);
  if (scheduler.total_steps <= 0) {
    out.error(scheduler_key("total_steps"),
              "OneCycleLR needs total_steps, or epochs and steps_per_epoch");
    return;
  }
  if (length.total_steps && *length.total_steps > scheduler.total_steps + 1)
    out.error(scheduler_key("total_steps"),
              "OneCycleLR ends after " + std::to_string(scheduler.total_steps) +
                  " steps, the run has " + std::to_string(*length.total_steps),
              "torch stops a run there with an error; raise total_steps");
  warn_of_cycle(scheduler_key("total_steps"), static_cast<double>(scheduler.total_steps), length,
                out);
  torch.linear = in.value<std::string>(scheduler_key("anneal_strategy")) == "linear";
  momentum(0.85, 0.95, in, config, out);
}

}  // namespace

void resolve_torch_schedule(const Source& in, const Length& length, ResolvedConfig& config,
                            Report& out) {
  SchedulerConfig& scheduler = config.scheduler;
  const std::string& type = scheduler.type;
  TorchScheduleConfig& torch = scheduler.torch;
  scheduler.total_steps = length.total_steps.value_or(0);
  scheduler.min_lr = in.value(scheduler_key("base_lr"), 0.0);
  scheduler.max_lr = in.value<double>(scheduler_key("max_lr"), config.optimizer.lr);
  torch.gamma = in.value<double>(scheduler_key("gamma"), type == "CyclicLR" ? 1.0 : torch.gamma);
  torch.step_size = in.value<int64_t>(scheduler_key("step_size"), torch.step_size);
  torch.start_factor =
      in.value<double>(scheduler_key(type == "ConstantLR" ? "factor" : "start_factor"), 1.0 / 3);
  torch.period =
      in.value<int64_t>(scheduler_key(type == "CosineAnnealingLR" ? "T_max" : "T_0"), torch.period);
  torch.step_size_down = in.value<double>(scheduler_key("step_size_down"), torch.step_size_up);
  if (const json* milestones = in.literal(scheduler_key("milestones"))) {
    for (const json& one : *milestones) {
      const auto whole = one.is_number() ? text::to_int(one.get<double>()) : std::nullopt;
      if (!whole) {
        out.error(scheduler_key("milestones"),
                  "found " + milestones->dump() + ", expected a list of whole numbers");
        return;
      }
      torch.milestones.push_back(*whole);
    }
  }
  if (type == "CyclicLR") {
    warn_of_cycle(scheduler_key("step_size_up"), torch.step_size_up + torch.step_size_down, length,
                  out);
    momentum(0.8, 0.9, in, config, out);
  }
  if (type == "OneCycleLR") one_cycle(in, length, config, out);
}

}  // namespace dsj::dsconfig
