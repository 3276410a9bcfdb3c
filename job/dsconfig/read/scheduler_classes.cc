#include "job/dsconfig/read/scheduler_classes.h"

#include <algorithm>

namespace dsj::dsconfig {
namespace {

const std::vector<SchedulerClass>& classes() {
  static const std::vector<SchedulerClass> table = {
      {"WarmupLR",
       true,
       {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type",
        "last_batch_iteration"},
       {}},
      {"WarmupDecayLR",
       true,
       {"total_num_steps", "warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type",
        "last_batch_iteration"},
       {}},
      {"WarmupCosineLR",
       true,
       {"total_num_steps", "warmup_min_ratio", "warmup_num_steps", "cos_min_ratio", "warmup_type",
        "last_batch_iteration"},
       {}},
      {"LRRangeTest",
       true,
       {"lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate",
        "lr_range_test_staircase", "last_batch_iteration"},
       {}},
      {"OneCycle",
       true,
       {"cycle_min_lr", "cycle_max_lr", "decay_lr_rate", "cycle_first_step_size",
        "cycle_second_step_size", "cycle_first_stair_count", "cycle_second_stair_count",
        "decay_step_size", "cycle_momentum", "cycle_min_mom", "cycle_max_mom", "decay_mom_rate",
        "last_batch_iteration"},
       {"cycle_min_lr", "cycle_max_lr"}},
      {"StepLR", false, {"step_size", "gamma", "last_epoch"}, {"step_size"}},
      {"MultiStepLR", false, {"milestones", "gamma", "last_epoch"}, {"milestones"}},
      {"ConstantLR", false, {"factor", "total_iters", "last_epoch"}, {}},
      {"LinearLR", false, {"start_factor", "end_factor", "total_iters", "last_epoch"}, {}},
      {"ExponentialLR", false, {"gamma", "last_epoch"}, {"gamma"}},
      {"PolynomialLR", false, {"total_iters", "power", "last_epoch"}, {}},
      {"CosineAnnealingLR", false, {"T_max", "eta_min", "last_epoch"}, {"T_max"}},
      {"CosineAnnealingWarmRestarts", false, {"T_0", "T_mult", "eta_min", "last_epoch"}, {"T_0"}},
      {"CyclicLR",
       false,
       {"base_lr", "max_lr", "step_size_up", "step_size_down", "mode", "gamma", "scale_fn",
        "scale_mode", "cycle_momentum", "base_momentum", "max_momentum", "last_epoch"},
       {"base_lr", "max_lr"}},
      {"OneCycleLR",
       false,
       {"max_lr", "total_steps", "epochs", "steps_per_epoch", "pct_start", "anneal_strategy",
        "cycle_momentum", "base_momentum", "max_momentum", "div_factor", "final_div_factor",
        "three_phase", "last_epoch"},
       {"max_lr"}},
  };
  return table;
}

const std::vector<std::pair<std::string, std::string>>& refused_classes() {
  static const std::vector<std::pair<std::string, std::string>> table = {
      {"LambdaLR", "it takes a Python function"},
      {"MultiplicativeLR", "it takes a Python function"},
      {"SequentialLR", "it takes schedule objects, which a ds_config cannot hold"},
      {"ChainedScheduler", "it takes schedule objects, which a ds_config cannot hold"},
      {"ReduceLROnPlateau", "it needs a metric at every step, which DeepSpeed does not pass"},
  };
  return table;
}

}  // namespace

const SchedulerClass* scheduler_class(const std::string& type) {
  const auto found = std::ranges::find(classes(), type, &SchedulerClass::name);
  return found == classes().end() ? nullptr : &*found;
}

std::string scheduler_refusal(const std::string& type) {
  for (const auto& [name, reason] : refused_classes())
    if (name == type) return reason;
  return "";
}

const std::vector<std::string>& scheduler_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& one : classes()) list.push_back(one.name);
    for (const auto& [name, reason] : refused_classes()) list.push_back(name);
    return list;
  }();
  return names;
}

}  // namespace dsj::dsconfig
