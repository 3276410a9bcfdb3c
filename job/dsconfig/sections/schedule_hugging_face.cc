// lrSchedulerType and lrSchedulerKwargs: the schedules of transformers.
#include <algorithm>

#include "common/text.h"
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {

using nlohmann::json;

namespace {

struct HuggingFaceType {
  const char* name;
  std::vector<std::string> kwargs;
};

const std::vector<HuggingFaceType>& types() {
  static const std::vector<HuggingFaceType> table = {
      {"constant", {}},
      {"constant_with_warmup", {}},
      {"linear", {}},
      {"cosine", {"num_cycles"}},
      {"cosine_with_restarts", {"num_cycles"}},
      {"polynomial", {"lr_end", "power"}},
      {"inverse_sqrt", {"timescale"}},
      {"cosine_with_min_lr", {"num_cycles", "min_lr", "min_lr_rate"}},
      {"cosine_warmup_with_min_lr", {"num_cycles", "min_lr", "min_lr_rate", "warmup_lr_rate"}},
      {"warmup_stable_decay",
       {"num_decay_steps", "num_stable_steps", "warmup_type", "decay_type", "min_lr_ratio",
        "num_cycles"}},
  };
  return table;
}

const std::vector<std::pair<std::string, std::string>>& refused_types() {
  static const std::vector<std::pair<std::string, std::string>> table = {
      {"reduce_lr_on_plateau", "its rate follows an evaluation's metric"},
      {"greedy", "its rate follows the loss"},
  };
  return table;
}

/// The keyword arguments, with the type's own defaults.
void keyword_arguments(const HuggingFaceType& type_and_kwargs, const Source& in,
                       ResolvedConfig& config, Report& out) {
  const std::string type = type_and_kwargs.name;
  const auto& known = type_and_kwargs.kwargs;
  SchedulerConfig& scheduler = config.scheduler;
  HuggingFaceScheduleConfig& hf = scheduler.hugging_face;
  const json kwargs = in.args.lr_scheduler_kwargs.value_or(json::object());
  const auto at = [](const std::string& name) { return "training.lrSchedulerKwargs." + name; };
  for (const auto& [name, value] : kwargs.items()) {
    if (std::ranges::find(known, name) != known.end()) continue;
    const std::string hint = text::did_you_mean(name, known);
    out.error(at(name), "\"" + type + "\" has no argument \"" + name + "\"",
              hint.empty() ? "remove it" : hint);
  }
  const auto number = [&](const char* name) -> std::optional<double> {
    const auto found = kwargs.find(name);
    if (found == kwargs.end() || found->is_null()) return std::nullopt;
    if (found->is_number()) return found->get<double>();
    if (found->is_string())
      if (const auto read = text::parse_double(found->get<std::string>())) return read;
    out.error(at(name), "found " + found->dump() + ", expected a number");
    return std::nullopt;
  };
  const auto whole = [&](const char* name) -> std::optional<int64_t> {
    const auto given = number(name);
    if (!given) return std::nullopt;
    if (const auto steps = text::to_int(*given); steps && *steps >= 0 && *steps < int64_t{1} << 53)
      return steps;
    out.error(at(name), "found " + text::number(*given) + ", expected a number of steps");
    return std::nullopt;
  };
  const auto shape = [&](const char* name, Shape fallback) {
    const auto found = kwargs.find(name);
    if (found == kwargs.end()) return fallback;
    if (*found == "linear") return Shape::Linear;
    if (*found == "cosine") return Shape::Cosine;
    if (*found == "1-sqrt") return Shape::OneMinusSqrt;
    out.error(at(name), "found " + found->dump() + ", expected linear, cosine or 1-sqrt");
    return fallback;
  };
  const double base = config.optimizer.lr;
  hf.num_cycles = number("num_cycles").value_or(type == "cosine_with_restarts" ? 1 : 0.5);
  hf.power = number("power").value_or(hf.power);
  hf.end_lr = number("lr_end").value_or(hf.end_lr);
  if (type == "polynomial" && !(base > hf.end_lr))
    out.error(at("lr_end"), "lr_end must be below the learning rate, " + text::number(base));
  hf.timescale =
      whole("timescale").value_or(scheduler.warmup_steps > 0 ? scheduler.warmup_steps : 10000);
  const auto min_lr = number("min_lr"), rate = number("min_lr_rate");
  if (type.ends_with("with_min_lr") && min_lr.has_value() == rate.has_value())
    out.error(at("min_lr"), "\"" + type + "\" needs either min_lr or min_lr_rate");
  hf.min_lr_rate = rate.value_or(min_lr && base > 0 ? *min_lr / base : 0);
  hf.warmup_lr_rate = number("warmup_lr_rate");
  if (type != "warmup_stable_decay") return;
  hf.min_lr_rate = number("min_lr_ratio").value_or(0);
  hf.warmup_shape = shape("warmup_type", Shape::Linear);
  hf.decay_shape = shape("decay_type", Shape::Cosine);
  if (kwargs.value("num_decay_steps", json()).is_null())
    out.error(at("num_decay_steps"), "\"" + type + "\" needs it");
  hf.decay_steps = whole("num_decay_steps").value_or(0);
  hf.stable_steps = whole("num_stable_steps")
                        .value_or(scheduler.total_steps - scheduler.warmup_steps - hf.decay_steps);
}

}  // namespace

void resolve_hugging_face_schedule(const Source& in, const Length& length, ResolvedConfig& config,
                                   Report& out) {
  const std::string type = in.args.lr_scheduler_type.value_or("linear");
  SchedulerConfig& scheduler = config.scheduler;
  scheduler.max_lr = config.optimizer.lr;
  for (const auto& [name, reason] : refused_types()) {
    if (name != type) continue;
    out.unsupported("training.lrSchedulerType", "\"" + type + "\" is not built", reason);
    return;
  }
  const auto found = std::ranges::find(types(), type, &HuggingFaceType::name);
  if (found == types().end()) {
    std::vector<std::string> all;
    for (const auto& one : types()) all.push_back(one.name);
    for (const auto& [name, reason] : refused_types()) all.push_back(name);
    out.error("training.lrSchedulerType", "\"" + type + "\" is not a schedule",
              text::did_you_mean(type, all));
    return;
  }
  scheduler.type = type;
  scheduler.log_warmup = false;
  scheduler.total_steps = length.total_steps.value_or(0);
  out.origin("scheduler.type", type,
             in.args.lr_scheduler_type ? "training.lrSchedulerType" : kHuggingFaceDefault);
  if (type == "constant") {
    if (length.warmup_asked)
      out.warning("training.lrSchedulerType", "no effect: warm-up with the schedule \"constant\"",
                  "use constant_with_warmup");
  } else {
    const auto& steps = length.warmup_steps;
    if (!steps) out.incomplete();
    scheduler.warmup_steps = steps.value_or(0);
    if (steps) out.origin("scheduler.warmup_steps", std::to_string(*steps), length.warmup_origin);
  }
  keyword_arguments(*found, in, config, out);
}

}  // namespace dsj::dsconfig
