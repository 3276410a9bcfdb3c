// What watches a run: when to log, save and evaluate; monitors and profilers.
#include <algorithm>

#include "common/text.h"
#include "job/dsconfig/parts.h"
#include "job/dsconfig/resolve.h"

namespace dsj::dsconfig {

using nlohmann::json;

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

void resolve_evaluation(const Source& in, EvalConfig& eval, Report& out) {
  const int64_t every =
      in.args.eval_steps.value_or(in.args.logging_steps.value_or(kHuggingFaceSteps));
  eval.when = cadence_of(in.args.evaluation_strategy, "no", every);
  eval.on_start = in.args.eval_on_start.value_or(false);
  eval.micro_batch_size = in.args.per_device_eval_batch_size.value_or(8);
  const bool wanted = eval.when.kind != Cadence::Kind::Never || eval.on_start;
  const bool file = in.args.eval_data_path && !in.args.eval_data_path->empty();
  const bool split = in.args.validation_split_percentage.has_value();
  if (file && split) {
    out.error("training.validationSplitPercentage", "evalDataPath names rows to evaluate on, too",
              "keep one of the two");
  } else if (wanted && !file && !split) {
    out.error("training.evaluationStrategy", "there are no rows to evaluate on",
              "give evalDataPath or validationSplitPercentage");
  } else if (file && !wanted) {
    out.warning("training.evalDataPath", "no effect: evaluationStrategy is no",
                "write evaluationStrategy: steps or epoch");
  }
  if (!split || !in.facts.dataset_rows) return;
  eval.split_rows = held_out_rows(*in.facts.dataset_rows, in.args);
  if (eval.split_rows < 1 || eval.split_rows >= *in.facts.dataset_rows) {
    out.error("training.validationSplitPercentage",
              text::number(*in.args.validation_split_percentage) + " % of " +
                  std::to_string(*in.facts.dataset_rows) + " rows are " +
                  std::to_string(eval.split_rows),
              "both parts need a row");
  }
}

/// A list of names; anything else in it is an error.
std::vector<std::string> operations(const Source& in, Report& out) {
  const char* path = "comms_logger.prof_ops";
  std::vector<std::string> names;
  const json* list = in.literal(path);
  if (list == nullptr || !list->is_array()) return names;
  for (const json& one : *list) {
    if (one.is_string())
      names.push_back(one.get<std::string>());
    else
      out.error(path, "found " + one.dump() + ", expected the name of an operation",
                "all_gather, reduce_scatter, all_reduce, broadcast, barrier");
  }
  return names;
}

}  // namespace

void resolve_cadences(const Source& in, ResolvedConfig& config, Report& out) {
  config.logging = {Cadence::Kind::Steps, std::max<int64_t>(1, in.args.logging_steps.value_or(1))};
  config.logging_first_step = in.args.logging_first_step.value_or(false);
  config.save =
      cadence_of(in.args.save_strategy, "steps", in.args.save_steps.value_or(kHuggingFaceSteps));
  resolve_evaluation(in, config.eval, out);
}

void resolve_observe(const Source& in, ResolvedConfig& config, Report& out) {
  ObserveConfig& observe = config.observe;
  observe.comms.prof_ops = operations(in, out);
  observe.flops.output_file = in.value<std::string>("flops_profiler.output_file", "");
  if (observe.flops.enabled) observe.wall_clock_breakdown = true;
}

}  // namespace dsj::dsconfig
