// load_best_model_at_end, save_strategy best and early stopping. Refuses what Trainer and
// EarlyStoppingCallback of transformers 5 refuse.
#include <cmath>

#include "common/text.h"
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {
namespace {

constexpr char kLoad[] = "training.loadBestModelAtEnd";
constexpr char kMetric[] = "training.metricForBestModel";

void resolve_metric(const TrainingArgs& args, BestConfig& best, Report& out) {
  const std::string metric = args.metric_for_best_model.value_or("loss");
  if (metric != "loss" && metric != "eval_loss")
    return out.error(kMetric,
                     "an evaluation has no metric \"" + metric + "\": eval_loss is the only one",
                     "write loss, or leave it out");
  best.greater = args.greater_is_better.value_or(!metric.ends_with("loss"));
  if (best.greater)
    out.warning("training.greaterIsBetter", "the evaluation with the largest loss is the best",
                "leave it out");
  // Trainer sets a default metric only for load_best_model_at_end.
  if (args.metric_for_best_model || best.load) return;
  if (best.save)
    out.error(kMetric, "saveStrategy \"best\" needs it", "write metricForBestModel: loss");
  else if (best.patience > 0)
    out.error(kMetric, "earlyStoppingPatience needs it", "write metricForBestModel: loss");
}

/// Checks that each save is at the step of an evaluation.
void check_same_steps(const TrainingArgs& args, Report& out) {
  const double save = args.save_steps.value_or(500), eval = evaluation_steps(args);
  const std::string both =
      "saves every " + text::number(save) + ", evaluations every " + text::number(eval);
  if (!(eval > 0)) return;
  if ((save < 1) != (eval < 1))
    return out.error(kLoad, both + ": one is a share of the run, the other a number of steps",
                     "give both as steps, or both as shares");
  constexpr double kLarge = 1'000'000;  // as Trainer does for shares
  const double scale = save < 1 ? kLarge : 1;
  if (std::fmod(save * scale, eval * scale) != 0)
    out.error(kLoad, both + ": saveSteps has to be a multiple of evalSteps",
              "the best model is one that was evaluated and saved at the same step");
}

}  // namespace

void resolve_best(const Source& in, ResolvedConfig& config, Report& out) {
  const TrainingArgs& args = in.args;
  BestConfig& best = config.eval.best;
  best = {.load = args.load_best_model_at_end.value_or(false),
          .save = args.save_strategy == "best",
          .patience = args.early_stopping_patience.value_or(0),
          .threshold = args.early_stopping_threshold.value_or(0)};
  if (args.early_stopping_threshold && best.patience == 0)
    out.warning("training.earlyStoppingThreshold", "no effect: earlyStoppingPatience is not given",
                "give it, or remove this");
  if (!best.on()) return;
  resolve_metric(args, best, out);
  const std::string evaluates = args.evaluation_strategy.value_or("no");
  const std::string saves = args.save_strategy.value_or("steps");
  if (evaluates == "no" && !(best.load && saves == "no")) {
    out.error("training.evaluationStrategy",
              std::string("it is no, and ") +
                  (best.load           ? "loadBestModelAtEnd"
                   : best.patience > 0 ? "earlyStoppingPatience"
                                       : "saveStrategy best") +
                  " needs evaluations",
              "write evaluationStrategy: steps or epoch");
    return;
  }
  if (best.patience > 0 && !best.load)
    out.warning("training.earlyStoppingPatience",
                "loadBestModelAtEnd is not set: the last model is exported, not the best");
  if (best.load && args.save_only_model.value_or(false))
    return out.error(kLoad, "saveOnlyModel keeps no checkpoint to load the best one from",
                     "leave one of the two out");
  if (!best.load || best.save) return;
  if (evaluates != saves)
    return out.error(kLoad,
                     "saveStrategy is \"" + saves + "\", evaluationStrategy \"" + evaluates +
                         "\": they have to be the same",
                     "or write saveStrategy: best");
  if (evaluates == "no")
    out.warning(kLoad, "no effect: nothing is evaluated, and nothing is saved");
  if (evaluates == "steps") check_same_steps(args, out);
}

}  // namespace dsj::dsconfig
