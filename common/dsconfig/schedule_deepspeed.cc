// The numbers of DeepSpeed's five schedules.
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

/// warmup_num_steps and warmup_type, which three of the schedules share.
void Resolver::warmup_phase() {
  SchedulerConfig& scheduler = out_.config.scheduler;
  const std::string path = at("warmup_num_steps");
  if (const json* warmup = literal(path)) {
    scheduler.warmup_steps = warmup->get<int64_t>();
    const auto asked = warmup_asked() ? warmup_steps() : std::nullopt;
    if (asked && *asked != scheduler.warmup_steps)
      mismatch(path, std::to_string(scheduler.warmup_steps), warmup_origin(),
               std::to_string(*asked));
  } else if (is_auto(path) || warmup_asked()) {
    const auto steps = warmup_steps();
    if (!steps) incomplete_ = true;
    scheduler.warmup_steps = steps.value_or(0);
    if (steps) origin(path, std::to_string(*steps), warmup_origin());
  } else {
    scheduler.warmup_steps = 1000;
    origin(path, "1000", kDeepSpeedDefault);
  }
  if (const json* shape = literal(at("warmup_type"))) scheduler.log_warmup = *shape == "log";
}

/// total_num_steps. Default: the run's length.
void Resolver::total_num_steps() {
  SchedulerConfig& scheduler = out_.config.scheduler;
  const std::string total = at("total_num_steps");
  if (const json* value = literal(total)) {
    scheduler.total_steps = value->get<int64_t>();
    if (args_.max_steps && *args_.max_steps > 0 && *args_.max_steps != scheduler.total_steps)
      mismatch(total, std::to_string(scheduler.total_steps), "training.maxSteps",
               std::to_string(*args_.max_steps));
  } else if (total_steps_) {
    origin(total, std::to_string(*total_steps_), "total steps of the run");
  } else if (!is_auto(total)) {
    absent({total, scheduler.type + " ends with the run: the job has to set the number of steps",
            "spec.training.maxSteps, or numTrainEpochs and the rows of its data"},
           scheduler.type + " needs total_num_steps",
           "add it, write \"auto\", or give training.maxSteps");
  }
  if (scheduler.total_steps > 0 && scheduler.total_steps < scheduler.warmup_steps)
    report(Severity::Warning, total,
           "total_num_steps " + std::to_string(scheduler.total_steps) +
               " is less than warmup_num_steps " + std::to_string(scheduler.warmup_steps),
           "the rate never reaches its maximum");
}

void Resolver::one_cycle() {
  SchedulerConfig& scheduler = out_.config.scheduler;
  OneCycleConfig& cycle = scheduler.one_cycle;
  scheduler.min_lr = real(at("cycle_min_lr"), 0);
  scheduler.max_lr = real(at("cycle_max_lr"), 0);
  cycle.first_size = real(at("cycle_first_step_size"), cycle.first_size);
  cycle.second_size = real(at("cycle_second_step_size"), cycle.first_size);
  cycle.first_stairs = integer(at("cycle_first_stair_count"), 0);
  cycle.second_stairs = integer(at("cycle_second_stair_count"), cycle.first_stairs);
  cycle.decay_step_size = real(at("decay_step_size"), 0);
  cycle.decay_lr_rate = real(at("decay_lr_rate"), 0);
  cycle.decay_momentum_rate = real(at("decay_mom_rate"), 0);
  cycle.min_momentum = real(at("cycle_min_mom"), cycle.min_momentum);
  cycle.max_momentum = real(at("cycle_max_mom"), cycle.max_momentum);
  const bool wanted = boolean(at("cycle_momentum"), true);
  cycle.momentum = wanted && takes(out_.config.optimizer.kind, "betas");
  if (wanted && !cycle.momentum)
    report(Severity::Warning, at("cycle_momentum"),
           "no effect: " + name_of(out_.config.optimizer) + " has no betas for OneCycle to write",
           "set cycle_momentum to false");
  cycle.momentum = cycled_momentum("OneCycle", cycle.momentum);
}

void Resolver::deepspeed_scheduler(const std::string& type) {
  SchedulerConfig& scheduler = out_.config.scheduler;
  const double lr = out_.config.optimizer.lr;
  scheduler.total_steps = total_steps_.value_or(0);
  scheduler.max_lr = lr;
  if (type == "OneCycle") return one_cycle();
  if (type == "LRRangeTest") {
    RangeTestConfig& test = scheduler.range_test;
    scheduler.min_lr = real(at("lr_range_test_min_lr"), 1e-3);
    test.step_size = integer(at("lr_range_test_step_size"), test.step_size);
    test.step_rate = real(at("lr_range_test_step_rate"), test.step_rate);
    test.staircase = boolean(at("lr_range_test_staircase"), false);
    return;
  }
  warmup_phase();
  if (type == "WarmupCosineLR") {
    WarmupCosineConfig& cosine = scheduler.warmup_cosine;
    cosine.warmup_min_ratio = real(at("warmup_min_ratio"), cosine.warmup_min_ratio);
    cosine.cos_min_ratio = real(at("cos_min_ratio"), cosine.cos_min_ratio);
    return total_num_steps();
  }
  scheduler.min_lr = real(at("warmup_min_lr"), 0);
  if (is_auto(at("warmup_min_lr"))) origin(at("warmup_min_lr"), "0", "Hugging Face's rule");
  // If absent in 0.19, WarmupLR takes the optimizer's rate and WarmupDecayLR 0.001 (0.13: both
  // 0.001).
  scheduler.max_lr = matched(at("warmup_max_lr"), args_.learning_rate, "learningRate", lr,
                             type == "WarmupLR" ? lr : 1e-3);
  if (type == "WarmupDecayLR") total_num_steps();
}

}  // namespace dsj::dsconfig
