// The numbers of torch.optim.lr_scheduler's types, by torch 2.11's constructors.
#include "common/dsconfig/resolver.h"
#include "common/text.h"

namespace dsj::dsconfig {

using nlohmann::json;
using Severity = Finding::Severity;

namespace {

std::string at(const char* name) {
  return std::string("scheduler.params.") + name;
}

}  // namespace

/// CyclicLR and OneCycleLR write beta1, or the momentum of an optimizer that has one.
void Resolver::torch_momentum(const std::string& type, double base, double most) {
  TorchScheduleConfig& torch = out_.config.scheduler.torch;
  OptimizerConfig& optimizer = out_.config.optimizer;
  torch.base_momentum = real(at("base_momentum"), base);
  torch.max_momentum = real(at("max_momentum"), most);
  torch.cycle_momentum = boolean(at("cycle_momentum"), true);
  if (!torch.cycle_momentum) return;
  const bool momentum = takes(optimizer.kind, "momentum");
  if (!momentum && !takes(optimizer.kind, "betas")) {
    report(Severity::Error, at("cycle_momentum"),
           name_of(optimizer) + " has neither momentum nor beta1 for " + type + " to cycle",
           "set cycle_momentum to false");
    return;
  }
  // The momentum buffer is needed even if the optimizer's own momentum is 0. RMSprop decides at
  // each step by its momentum.
  if (momentum && optimizer.momentum == 0) optimizer.momentum = torch.max_momentum;
  torch.cycle_momentum = cycled_momentum(type, true);
}

void Resolver::torch_one_cycle() {
  SchedulerConfig& scheduler = out_.config.scheduler;
  TorchScheduleConfig& torch = scheduler.torch;
  const int64_t epochs = integer(at("epochs"), 0), each = integer(at("steps_per_epoch"), 0);
  scheduler.total_steps = integer(at("total_steps"), epochs * each);
  if (scheduler.total_steps <= 0) {
    report(Severity::Error, at("total_steps"),
           "OneCycleLR needs total_steps, or epochs and steps_per_epoch");
    return;
  }
  if (total_steps_ && *total_steps_ > scheduler.total_steps + 1)
    report(Severity::Error, at("total_steps"),
           "OneCycleLR ends after " + std::to_string(scheduler.total_steps) +
               " steps, the run has " + std::to_string(*total_steps_),
           "torch stops a run there with an error; raise total_steps");
  torch.pct_start = real(at("pct_start"), torch.pct_start);
  torch.div_factor = real(at("div_factor"), torch.div_factor);
  torch.final_div_factor = real(at("final_div_factor"), torch.final_div_factor);
  torch.three_phase = boolean(at("three_phase"), false);
  if (const json* shape = literal(at("anneal_strategy"))) torch.linear = *shape == "linear";
  torch_momentum("OneCycleLR", 0.85, 0.95);
}

void Resolver::torch_scheduler(const std::string& type) {
  SchedulerConfig& scheduler = out_.config.scheduler;
  TorchScheduleConfig& torch = scheduler.torch;
  scheduler.total_steps = total_steps_.value_or(0);
  scheduler.min_lr = real(at("base_lr"), 0);
  scheduler.max_lr = real(at("max_lr"), out_.config.optimizer.lr);
  torch.gamma = real(at("gamma"), type == "CyclicLR" ? 1.0 : torch.gamma);
  torch.step_size = integer(at("step_size"), torch.step_size);
  torch.total_iters = integer(at("total_iters"), torch.total_iters);
  torch.start_factor = real(at(type == "ConstantLR" ? "factor" : "start_factor"), 1.0 / 3);
  torch.end_factor = real(at("end_factor"), torch.end_factor);
  torch.power = real(at("power"), torch.power);
  torch.period = integer(at(type == "CosineAnnealingLR" ? "T_max" : "T_0"), torch.period);
  torch.period_factor = integer(at("T_mult"), torch.period_factor);
  torch.eta_min = real(at("eta_min"), torch.eta_min);
  torch.step_size_up = real(at("step_size_up"), torch.step_size_up);
  torch.step_size_down = real(at("step_size_down"), torch.step_size_up);
  if (const json* mode = literal(at("mode"))) torch.mode = mode->get<std::string>();
  if (const json* milestones = literal(at("milestones"))) {
    for (const json& one : *milestones) {
      const auto whole = one.is_number() ? text::to_int(one.get<double>()) : std::nullopt;
      if (!whole) {
        report(Severity::Error, at("milestones"),
               "found " + milestones->dump() + ", expected a list of whole numbers");
        return;
      }
      torch.milestones.push_back(*whole);
    }
  }
  if (type == "CyclicLR") torch_momentum(type, 0.8, 0.9);
  if (type == "OneCycleLR") torch_one_cycle();
}

}  // namespace dsj::dsconfig
