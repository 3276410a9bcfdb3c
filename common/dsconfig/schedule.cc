// Which learning-rate schedule a run has. ds_config's scheduler wins; else lrSchedulerType; else
// WarmupDecayLR, if warm-up was asked for and the steps are known; else a constant rate. The
// numbers of each family: schedule_deepspeed.cc, schedule_torch.cc, schedule_hugging_face.cc.
#include <algorithm>

#include "common/dsconfig/keys.h"
#include "common/dsconfig/resolver.h"
#include "common/dsconfig/scheduler_classes.h"
#include "common/text.h"

namespace dsj::dsconfig {

using nlohmann::json;
using Severity = Finding::Severity;

bool Resolver::warmup_asked() const {
  return args_.warmup_steps.value_or(0) > 0 || args_.warmup_ratio.value_or(0) > 0;
}

double Resolver::real(const std::string& path, double fallback) const {
  const json* value = literal(path);
  return value == nullptr ? fallback : value->get<double>();
}

/// What would be a TypeError in Python: unknown parameters, and missing ones.
bool Resolver::scheduler_params(const SchedulerClass& found) {
  const auto at = [](const std::string& name) { return "scheduler.params." + name; };
  bool good = true;
  if (const json* params = checked_.find("scheduler.params")) {
    for (const auto& [name, value] : params->items()) {
      if (std::ranges::find(found.params, name) != found.params.end()) continue;
      const std::string hint = text::did_you_mean(name, found.params);
      report(Severity::Error, at(name), found.name + " has no parameter \"" + name + "\"",
             hint.empty() ? "remove it" : hint);
      good = false;
    }
  }
  for (const std::string& name : found.required) {
    if (literal(at(name)) != nullptr) continue;
    report(Severity::Error, at(name), found.name + " needs " + name);
    good = false;
  }
  return good;
}

bool Resolver::cycled_momentum(const std::string& schedule, bool wanted) {
  const OptimizerConfig& optimizer = out_.config.optimizer;
  const Optimizer& known = descriptor_of(optimizer.kind);
  if (wanted && known.momentum_product) {
    report(Severity::Unsupported, "scheduler.params.cycle_momentum",
           std::string(known.name) + "'s product of momenta with a momentum that " + schedule +
               " changes is not built",
           "set cycle_momentum to false");
    return false;
  }
  return wanted;
}

void Resolver::unsaid_scheduler() {
  SchedulerConfig& scheduler = out_.config.scheduler;
  scheduler.max_lr = out_.config.optimizer.lr;
  scheduler.total_steps = total_steps_.value_or(0);
  if (warmup_asked() && total_steps_) {
    scheduler.type = "WarmupDecayLR";
    scheduler.warmup_steps = warmup_steps().value_or(0);
    origin("scheduler.type", scheduler.type, "warm-up was asked for and no schedule named");
    origin("scheduler.warmup_steps", std::to_string(scheduler.warmup_steps), warmup_origin());
    return;
  }
  if (warmup_asked()) incomplete_ = true;  // decided once the steps are known
  origin("scheduler.type", "constant", kDeepSpeedDefault);
}

void Resolver::scheduler() {
  const bool has_section = checked_.find("scheduler") != nullptr;
  const json* type = literal("scheduler.type");
  if (type == nullptr) {
    if (has_section)
      report(Severity::Warning, "scheduler", "no effect: the section names no schedule",
             "add \"type\", for example \"WarmupLR\"");
    if (args_.lr_scheduler_type)
      hugging_face_scheduler(*args_.lr_scheduler_type);
    else
      unsaid_scheduler();
    return;
  }
  const std::string name = type->get<std::string>();
  if (const SchedulerClass* found = scheduler_class(name)) {
    out_.config.scheduler.type = name;
    if (scheduler_params(*found)) {
      if (found->deepspeed)
        deepspeed_scheduler(name);
      else
        torch_scheduler(name);
    }
  } else if (const std::string reason = scheduler_refusal(name); !reason.empty()) {
    report(Severity::Unsupported, "scheduler.type", "\"" + name + "\" is not built", reason);
  } else {
    report(Severity::Error, "scheduler.type", "\"" + name + "\" is not a schedule",
           text::did_you_mean(name, scheduler_names()));
  }
  if (args_.lr_scheduler_type)
    report(Severity::Warning, "training.lrSchedulerType",
           "no effect: ds_config's scheduler, " + name + ", is used", "remove one of the two");
}

}  // namespace dsj::dsconfig
