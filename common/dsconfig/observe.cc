// What watches a run: when to log, save and evaluate; monitors and profilers.
#include <cmath>

#include "common/dsconfig/resolver.h"
#include "common/text.h"

namespace dsj::dsconfig {

using nlohmann::json;
using Severity = Finding::Severity;

std::string Resolver::word(const std::string& path, const std::string& fallback) const {
  const json* value = literal(path);
  return value != nullptr && value->is_string() ? value->get<std::string>() : fallback;
}

// ---- cadences -----------------------------------------------------------------------------------

namespace {

Cadence cadence_of(const std::optional<std::string>& strategy, const char* fallback,
                   int64_t every) {
  const std::string name = strategy.value_or(fallback);
  if (name == "epoch") return {Cadence::Kind::Epoch, 1};
  if (name == "steps") return {Cadence::Kind::Steps, std::max<int64_t>(1, every)};
  return {};
}

/// Hugging Face's default of logging_steps. Ours is 1, but eval_steps follows theirs.
constexpr int64_t kHuggingFaceSteps = 500;

}  // namespace

std::optional<int64_t> Resolver::training_rows() const {
  if (!facts_.dataset_rows || !args_.validation_split_percentage) return facts_.dataset_rows;
  const double share = *args_.validation_split_percentage / 100;
  return *facts_.dataset_rows - std::llround(static_cast<double>(*facts_.dataset_rows) * share);
}

void Resolver::cadences() {
  ResolvedConfig& config = out_.config;
  config.logging = {Cadence::Kind::Steps, std::max<int64_t>(1, args_.logging_steps.value_or(1))};
  config.logging_first_step = args_.logging_first_step.value_or(false);
  config.save =
      cadence_of(args_.save_strategy, "steps", args_.save_steps.value_or(kHuggingFaceSteps));
  evaluation();
}

void Resolver::evaluation() {
  EvalConfig& eval = out_.config.eval;
  const int64_t every = args_.eval_steps.value_or(args_.logging_steps.value_or(kHuggingFaceSteps));
  eval.when = cadence_of(args_.evaluation_strategy, "no", every);
  eval.on_start = args_.eval_on_start.value_or(false);
  eval.micro_batch_size = args_.per_device_eval_batch_size.value_or(8);
  const bool wanted = eval.when.kind != Cadence::Kind::Never || eval.on_start;
  const bool file = args_.eval_data_path && !args_.eval_data_path->empty();
  const bool split = args_.validation_split_percentage.has_value();
  if (file && split) {
    report(Severity::Error, "training.validationSplitPercentage",
           "evalDataPath names rows to evaluate on, too", "keep one of the two");
  } else if (wanted && !file && !split) {
    report(Severity::Error, "training.evaluationStrategy", "there are no rows to evaluate on",
           "give evalDataPath or validationSplitPercentage");
  } else if (file && !wanted) {
    report(Severity::Warning, "training.evalDataPath", "no effect: evaluationStrategy is no",
           "write evaluationStrategy: steps or epoch");
  }
  if (!split || !facts_.dataset_rows) return;
  eval.split_rows = *facts_.dataset_rows - *training_rows();
  if (eval.split_rows < 1 || eval.split_rows >= *facts_.dataset_rows) {
    report(Severity::Error, "training.validationSplitPercentage",
           text::number(*args_.validation_split_percentage) + " % of " +
               std::to_string(*facts_.dataset_rows) + " rows are " +
               std::to_string(eval.split_rows),
           "both parts need a row");
  }
}

// ---- monitors and profilers ---------------------------------------------------------------------

MonitorConfig Resolver::monitor(const std::string& section) const {
  MonitorConfig config;
  config.enabled = boolean(section + ".enabled", false);
  config.output_path = word(section + ".output_path", config.output_path);
  config.job_name = word(section + ".job_name", config.job_name);
  return config;
}

void Resolver::observe() {
  ObserveConfig& observe = out_.config.observe;
  observe.memory_breakdown = boolean("memory_breakdown", false);
  observe.dump_state = boolean("dump_state", false);
  observe.tensorboard = monitor("tensorboard");
  observe.csv = monitor("csv_monitor");

  CommsLoggerConfig& comms = observe.comms;
  comms.enabled = boolean("comms_logger.enabled", false);
  comms.prof_all = boolean("comms_logger.prof_all", true);
  comms.verbose = boolean("comms_logger.verbose", false);
  comms.debug = boolean("comms_logger.debug", false);
  if (const json* ops = literal("comms_logger.prof_ops"); ops != nullptr && ops->is_array()) {
    for (const json& op : *ops) {
      if (op.is_string())
        comms.prof_ops.push_back(op.get<std::string>());
      else
        report(Severity::Error, "comms_logger.prof_ops",
               "found " + op.dump() + ", expected the name of an operation",
               "all_gather, reduce_scatter, all_reduce, broadcast, barrier");
    }
  }

  FlopsProfilerConfig& flops = observe.flops;
  const auto at = [](const char* name) { return std::string("flops_profiler.") + name; };
  flops.enabled = boolean(at("enabled"), false);
  flops.recompute_fwd_factor = number(at("recompute_fwd_factor"), 0);
  flops.profile_step = integer(at("profile_step"), flops.profile_step);
  flops.module_depth = integer(at("module_depth"), flops.module_depth);
  flops.top_modules = integer(at("top_modules"), flops.top_modules);
  flops.detailed = boolean(at("detailed"), true);
  flops.output_file = word(at("output_file"), "");
  observe.wall_clock_breakdown = boolean("wall_clock_breakdown", false) || flops.enabled;
}

}  // namespace dsj::dsconfig
