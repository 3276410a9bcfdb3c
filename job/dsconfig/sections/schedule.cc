// Resolves the learning-rate schedule. ds_config's scheduler wins over lrSchedulerType, whose
// default is Hugging Face's: linear. The families' numbers: schedule_deepspeed.cc,
// schedule_torch.cc, schedule_hugging_face.cc.
#include <algorithm>

#include "common/text.h"
#include "job/dsconfig/config/rates.h"
#include "job/dsconfig/read/scheduler_classes.h"
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {

using nlohmann::json;

namespace {

/// Reports unknown and missing parameters, which would be a TypeError in Python.
bool scheduler_params(const SchedulerClass& found, const Source& in, Report& out) {
  const auto at = [](const std::string& name) { return "scheduler.params." + name; };
  bool good = true;
  if (const json* params = in.checked.find("scheduler.params")) {
    for (const auto& [name, value] : params->items()) {
      if (std::ranges::find(found.params, name) != found.params.end()) continue;
      const std::string hint = text::did_you_mean(name, found.params);
      out.error(at(name), found.name + " has no parameter \"" + name + "\"",
                hint.empty() ? "remove it" : hint);
      good = false;
    }
  }
  for (const std::string& name : found.required) {
    if (in.literal(at(name)) != nullptr) continue;
    out.error(at(name), found.name + " needs " + name);
    good = false;
  }
  return good;
}

/// The parameter that can make a rate of this type negative or not finite.
std::string key_of_rate(const SchedulerConfig& scheduler, int64_t step) {
  const std::string& type = scheduler.type;
  if (type == "OneCycleLR")
    return scheduler_key(step > scheduler.total_steps ? "total_steps" : "pct_start");
  if (type == "OneCycle") return scheduler_key("decay_lr_rate");
  if (type == "LRRangeTest") return scheduler_key("lr_range_test_step_rate");
  if (type == "PolynomialLR") return scheduler_key("power");
  for (const char* by_gamma : {"StepLR", "MultiStepLR", "ExponentialLR", "CyclicLR"})
    if (type == by_gamma) return scheduler_key("gamma");
  return scheduler_class(type) ? "scheduler.params" : "training.lrSchedulerType";
}

}  // namespace

void check_rates(const ResolvedConfig& config, Report& out) {
  const SchedulerConfig& scheduler = config.scheduler;
  const auto check = [&](double base_lr) {
    const auto bad = first_bad_rate(scheduler, base_lr, config.total_steps);
    if (!bad) return true;
    out.error(key_of_rate(scheduler, bad->step),
              scheduler.type + ": the " + bad->what + " in step " + std::to_string(bad->step) +
                  " of " + std::to_string(config.total_steps),
              "expected a finite rate of at least 0 and a finite momentum in every step");
    return false;
  };
  const bool good = check(config.optimizer.lr);
  if (good && config.optimizer.kind == OptimizerKind::Muon) check(config.muon.adam_lr);
}

void warn_of_cycle(const std::string& path, double steps, const Length& length, Report& out) {
  if (!length.total_steps || steps <= static_cast<double>(*length.total_steps)) return;
  out.warning(path,
              "the cycle takes " + text::number(steps) + " steps, and the run has " +
                  std::to_string(*length.total_steps),
              "the run ends within the cycle");
}

bool cycles_momentum(const std::string& schedule, bool wanted, const OptimizerConfig& optimizer,
                     Report& out) {
  const Optimizer& known = descriptor_of(optimizer.kind);
  if (wanted && known.momentum_product) {
    out.unsupported("scheduler.params.cycle_momentum",
                    std::string(known.name) + "'s product of momenta with a momentum that " +
                        schedule + " changes is not built",
                    "set cycle_momentum to false");
    return false;
  }
  return wanted;
}

void resolve_scheduler(const Source& in, const Length& length, ResolvedConfig& config,
                       Report& out) {
  const bool has_section = in.checked.find("scheduler") != nullptr;
  const json* type = in.literal("scheduler.type");
  if (type == nullptr) {
    if (has_section)
      out.warning("scheduler", "no effect: the section names no schedule",
                  "add \"type\", for example \"WarmupLR\"");
    resolve_hugging_face_schedule(in, length, config, out);
    return;
  }
  const std::string name = type->get<std::string>();
  if (const SchedulerClass* found = scheduler_class(name)) {
    config.scheduler.type = name;
    if (scheduler_params(*found, in, out)) {
      if (found->deepspeed)
        resolve_deepspeed_schedule(in, length, config, out);
      else
        resolve_torch_schedule(in, length, config, out);
    }
  } else if (const std::string reason = scheduler_refusal(name); !reason.empty()) {
    out.unsupported("scheduler.type", "\"" + name + "\" is not built", reason);
  } else {
    out.error("scheduler.type", "\"" + name + "\" is not a schedule",
              text::did_you_mean(name, scheduler_names()));
  }
  if (in.args.lr_scheduler_type)
    out.warning("training.lrSchedulerType",
                "no effect: ds_config's scheduler, " + name + ", is used", "remove one of the two");
}

}  // namespace dsj::dsconfig
