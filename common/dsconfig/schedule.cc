// Which learning-rate schedule a run has, and its numbers. The rule: ds_config's scheduler wins;
// else lrSchedulerType; else WarmupDecayLR when warm-up was asked for and the steps are known; else
// a constant rate.
#include <algorithm>

#include "common/dsconfig/keys.h"
#include "common/dsconfig/resolver.h"
#include "common/text.h"

namespace dsj::dsconfig {

using nlohmann::json;
using Severity = Finding::Severity;

bool Resolver::warmup_asked() const {
  return args_.warmup_steps.value_or(0) > 0 || args_.warmup_ratio.value_or(0) > 0;
}

void Resolver::deepspeed_scheduler(const std::string& type) {
  SchedulerConfig& scheduler = out_.config.scheduler;
  const auto at = [](const char* name) { return std::string("scheduler.params.") + name; };
  const double lr = out_.config.optimizer.lr;
  scheduler.type = type;
  if (const json* min = literal(at("warmup_min_lr"))) scheduler.min_lr = min->get<double>();
  if (is_auto(at("warmup_min_lr"))) origin(at("warmup_min_lr"), "0", "Hugging Face's rule");
  // Absent: DeepSpeed 0.19 takes the optimizer's rate (0.13: 0.001).
  scheduler.max_lr = matched(at("warmup_max_lr"), args_.learning_rate, "learningRate", lr, lr);
  if (const json* warmup = literal(at("warmup_num_steps"))) {
    scheduler.warmup_steps = warmup->get<int64_t>();
    const auto asked = warmup_asked() ? warmup_steps() : std::nullopt;
    if (asked && *asked != scheduler.warmup_steps)
      mismatch(at("warmup_num_steps"), std::to_string(scheduler.warmup_steps), warmup_origin(),
               std::to_string(*asked));
  } else if (is_auto(at("warmup_num_steps")) || warmup_asked()) {
    const auto steps = warmup_steps();
    if (!steps) incomplete_ = true;
    scheduler.warmup_steps = steps.value_or(0);
    if (steps) origin(at("warmup_num_steps"), std::to_string(*steps), warmup_origin());
  } else {
    scheduler.warmup_steps = 1000;
    origin(at("warmup_num_steps"), "1000", kDeepSpeedDefault);
  }
  if (const json* shape = literal(at("warmup_type"))) scheduler.log_warmup = *shape == "log";
  scheduler.total_steps = total_steps_.value_or(0);
  if (type != "WarmupDecayLR") return;
  const std::string total = at("total_num_steps");
  if (const json* value = literal(total)) {
    scheduler.total_steps = value->get<int64_t>();
    if (args_.max_steps && *args_.max_steps > 0 && *args_.max_steps != scheduler.total_steps)
      mismatch(total, std::to_string(scheduler.total_steps), "training.maxSteps",
               std::to_string(*args_.max_steps));
  } else if (total_steps_) {
    origin(total, std::to_string(*total_steps_), "total steps of the run");
  } else if (!is_auto(total)) {
    report(Severity::Error, total, "WarmupDecayLR needs total_num_steps",
           "add it, write \"auto\", or give training.maxSteps");
  }
  if (scheduler.total_steps > 0 && scheduler.total_steps < scheduler.warmup_steps)
    report(Severity::Warning, total,
           "total_num_steps " + std::to_string(scheduler.total_steps) +
               " is less than warmup_num_steps " + std::to_string(scheduler.warmup_steps),
           "the rate never reaches its maximum");
}

void Resolver::hugging_face_scheduler(const std::string& type) {
  static const std::vector<std::string> built = {"constant", "constant_with_warmup", "linear",
                                                 "cosine"};
  static const std::vector<std::string> others = {
      "cosine_with_restarts",     "polynomial",         "inverse_sqrt",
      "reduce_lr_on_plateau",     "cosine_with_min_lr", "warmup_stable_decay",
      "cosine_warmup_with_min_lr"};
  SchedulerConfig& scheduler = out_.config.scheduler;
  scheduler.max_lr = out_.config.optimizer.lr;
  if (std::find(others.begin(), others.end(), type) != others.end()) {
    report(Severity::Unsupported, "training.lrSchedulerType",
           "\"" + type + "\" is not built in this version",
           "constant, constant_with_warmup, linear and cosine are");
    return;
  }
  if (std::find(built.begin(), built.end(), type) == built.end()) {
    std::vector<std::string> all = built;
    all.insert(all.end(), others.begin(), others.end());
    report(Severity::Error, "training.lrSchedulerType", "\"" + type + "\" is not a schedule",
           text::did_you_mean(type, all));
    return;
  }
  scheduler.type = type;
  scheduler.log_warmup = false;
  scheduler.total_steps = total_steps_.value_or(0);
  origin("scheduler.type", type, "training.lrSchedulerType");
  if (type == "constant") {
    if (warmup_asked())
      report(Severity::Warning, "training.lrSchedulerType",
             "no effect: warm-up with the schedule \"constant\"", "use constant_with_warmup");
    return;
  }
  const auto steps = warmup_steps();
  if (!steps) incomplete_ = true;
  scheduler.warmup_steps = steps.value_or(0);
  if (steps) origin("scheduler.warmup_steps", std::to_string(*steps), warmup_origin());
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
  switch (scheduler_support(name)) {
    case Support::Here:
      deepspeed_scheduler(name);
      break;
    case Support::Elsewhere:
      report(Severity::Unsupported, "scheduler.type",
             "\"" + name + "\" is not built in this version", "WarmupLR and WarmupDecayLR are");
      break;
    case Support::Unknown:
      report(Severity::Error, "scheduler.type", "\"" + name + "\" is not a schedule",
             text::did_you_mean(name, scheduler_names()));
      break;
  }
  if (args_.lr_scheduler_type)
    report(Severity::Warning, "training.lrSchedulerType",
           "no effect: ds_config's scheduler, " + name + ", is used", "remove one of the two");
}

}  // namespace dsj::dsconfig
