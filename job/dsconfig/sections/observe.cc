// When to log, save and evaluate; monitors and profilers.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "common/text.h"
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {

using nlohmann::json;

namespace {

/// `every`: steps, or below 1 a share of `total` (TrainerState.compute_steps). 0: only at the end
/// of the run.
Cadence cadence_of(const std::optional<std::string>& strategy, const char* fallback, double every,
                   int64_t total) {
  const std::string name = strategy.value_or(fallback);
  if (name == "epoch") return {Cadence::Kind::Epoch, 1};
  if (name != "steps") return {};
  const double steps = every >= 1 ? every : std::ceil(static_cast<double>(total) * every);
  return {Cadence::Kind::Steps, steps >= 1 ? static_cast<int64_t>(steps) : INT64_MAX};
}

/// Hugging Face's default of logging_steps. Ours is 1, but eval_steps defaults to theirs.
constexpr double kHuggingFaceSteps = 500;

void resolve_evaluation(const Source& in, int64_t total, EvalConfig& eval, Report& out) {
  eval.when = cadence_of(in.args.evaluation_strategy, "no", evaluation_steps(in.args), total);
  eval.delay = in.args.eval_delay.value_or(0);
  eval.on_start = in.args.eval_on_start.value_or(false);
  eval.micro_batch_size = in.args.per_device_eval_batch_size.value_or(8);
  const bool wanted = eval.when.kind != Cadence::Kind::Never || eval.on_start;
  const bool named = in.args.eval_dataset && !in.args.eval_dataset->empty();
  const bool file = named || (in.args.eval_data_path && !in.args.eval_data_path->empty());
  const char* rows = named ? "evalDataset" : "evalDataPath";
  const bool random = in.args.val_size.value_or(0) > 0;
  const bool first = in.args.validation_split_percentage.value_or(0) > 0;
  const bool split = random || first;
  const char* key = random ? "training.valSize" : "training.validationSplitPercentage";
  if (named && !in.args.eval_data_path.value_or("").empty()) {
    out.error("training.evalDataset", "evalDataPath names rows to evaluate on, too",
              "keep one of the two");
  } else if (file && split) {
    out.error(key, std::string(rows) + " names rows to evaluate on, too", "keep one of the two");
  } else if (random && first) {
    out.error(key, "validationSplitPercentage holds rows out, too", "keep one of the two");
  } else if (wanted && !file && !split) {
    out.error("training.evaluationStrategy", "there are no rows to evaluate on",
              "give evalDataPath, evalDataset, valSize or validationSplitPercentage");
  } else if (file && !wanted) {
    out.warning(std::string("training.") + rows, "no effect: evaluationStrategy is no",
                "write evaluationStrategy: steps or epoch");
  }
  if (!split || !in.facts.dataset_rows) return;
  eval.split_rows = held_out_rows(*in.facts.dataset_rows, in.args);
  if (eval.split_rows < 1 || eval.split_rows >= *in.facts.dataset_rows) {
    out.error(key,
              text::number(random ? *in.args.val_size : *in.args.validation_split_percentage) +
                  (random ? " of " : " % of ") + std::to_string(*in.facts.dataset_rows) +
                  " rows are " + std::to_string(eval.split_rows),
              "both parts need a row");
  }
}

/// A list of names; any other element is an error.
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

double evaluation_steps(const TrainingArgs& args) {
  const double logging = args.logging_steps.value_or(kHuggingFaceSteps);
  return args.eval_steps.value_or(0) > 0 ? *args.eval_steps : logging;
}

void resolve_cadences(const Source& in, ResolvedConfig& config, Report& out) {
  const TrainingArgs& args = in.args;
  const int64_t total = config.total_steps;
  config.logging =
      cadence_of(args.logging_strategy, "steps", args.logging_steps.value_or(1), total);
  config.logging_first_step = args.logging_first_step.value_or(false);
  config.save =
      cadence_of(args.save_strategy, "steps", args.save_steps.value_or(kHuggingFaceSteps), total);
  resolve_evaluation(in, total, config.eval, out);
}

namespace {

/// Programs to which Trainer can report. Only tensorboard is built.
constexpr const char* kTrackers[] = {"azure_ml", "clearml", "codecarbon", "comet_ml",   "dagshub",
                                     "dvclive",  "flyte",   "kubeflow",   "mlflow",     "neptune",
                                     "swanlab",  "trackio", "wandb",      "tensorboard"};

/// training.reportTo: a list of trackers.
void report_to(const Source& in, ObserveConfig& observe, Report& out) {
  const char* path = "training.reportTo";
  std::istringstream words(in.args.report_to.value_or("none"));
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "none" || word.empty()) continue;
    const bool known = std::ranges::find(kTrackers, word) != std::end(kTrackers);
    if (word == "tensorboard" || word == "all") {
      if (observe.tensorboard.enabled) continue;  // ds_config enables it and sets its path
      observe.tensorboard = {
          .enabled = true,
          .output_path = in.args.logging_dir.value_or(in.args.output_dir + "/runs"),
          .job_name = in.args.run_name.value_or("run")};
    } else if (known) {
      out.warning(path, "nothing is sent to " + word,
                  "docs/watching.md shows how to send metrics.jsonl, which has every step");
    } else {
      std::vector<std::string> names = {"none", "all"};
      names.insert(names.end(), std::begin(kTrackers), std::end(kTrackers));
      const std::string hint = text::did_you_mean(word, names);
      out.error(path, "\"" + word + "\" is not a tracker of Hugging Face's",
                hint.empty() ? "write tensorboard or none" : hint);
    }
  }
}

}  // namespace

void resolve_observe(const Source& in, ResolvedConfig& config, Report& out) {
  ObserveConfig& observe = config.observe;
  report_to(in, observe, out);
  observe.comms.prof_ops = operations(in, out);
  observe.flops.output_file = in.value<std::string>("flops_profiler.output_file", "");
  if (observe.flops.enabled) observe.wall_clock_breakdown = true;
}

}  // namespace dsj::dsconfig
