// The rules of the training arguments, and those that stand for no key of ds_config.
#include <algorithm>
#include <cmath>

#include "common/text.h"
#include "job/dsconfig/loss_normalization.h"
#include "job/dsconfig/parts.h"

namespace dsj::dsconfig {

using Severity = Finding::Severity;

void check_arguments(const TrainingArgs& args, Report& out) {
  const auto at_least = [&](const char* name, const auto& value, double least, bool above = false) {
    if (!value) return;
    const double found = static_cast<double>(*value);
    if (above ? found > least : found >= least) return;
    out.error(std::string("training.") + name, "found " + text::number(found) + ", expected " +
                                                   (above ? "more than " : "at least ") +
                                                   text::number(least));
  };
  const auto at_most = [&](const char* name, const std::optional<double>& value, double most) {
    if (value && *value > most)
      out.error(std::string("training.") + name,
                "found " + text::number(*value) + ", expected at most " + text::number(most));
  };
  const auto below_one = [&](const char* name, const std::optional<double>& value) {
    if (value && *value >= 1)
      out.error(std::string("training.") + name,
                "found " + text::number(*value) + ", expected less than 1");
  };
  at_least("maxSteps", args.max_steps, -1);
  at_least("numTrainEpochs", args.num_train_epochs, 0, true);
  at_least("perDeviceTrainBatchSize", args.per_device_train_batch_size, 1);
  at_least("gradientAccumulationSteps", args.gradient_accumulation_steps, 1);
  at_least("learningRate", args.learning_rate, 0);
  at_least("weightDecay", args.weight_decay, 0);
  at_least("adamBeta1", args.adam_beta1, 0);
  at_least("adamBeta2", args.adam_beta2, 0);
  below_one("adamBeta1", args.adam_beta1);
  below_one("adamBeta2", args.adam_beta2);
  at_least("adamEpsilon", args.adam_epsilon, 0);
  at_least("warmupRatio", args.warmup_ratio, 0);
  at_most("warmupRatio", args.warmup_ratio, 1);
  at_least("warmupSteps", args.warmup_steps, 0);
  at_least("seed", args.seed, 0);
  at_least("dataSeed", args.data_seed, 0);
  const bool logs_steps = args.logging_strategy.value_or("steps") == "steps";
  at_least("loggingSteps", args.logging_steps, 0, logs_steps);
  at_least("saveSteps", args.save_steps, 0);
  at_least("maxSkippedSteps", args.max_skipped_steps, 0);
  at_least("maxSeqLength", args.max_seq_length, 2);
  at_least("evalSteps", args.eval_steps, 0);
  at_least("evalDelay", args.eval_delay, 0);
  at_least("earlyStoppingPatience", args.early_stopping_patience, 1);
  at_least("earlyStoppingThreshold", args.early_stopping_threshold, 0);
  const auto whole_or_share = [&](const char* name, const std::optional<double>& value) {
    if (value && *value > 1 && (*value != std::floor(*value) || *value > 1e15))
      out.error(std::string("training.") + name,
                "found " + text::number(*value) +
                    ", expected a whole number of steps, or a share of the run below 1");
  };
  whole_or_share("loggingSteps", args.logging_steps);
  whole_or_share("saveSteps", args.save_steps);
  whole_or_share("evalSteps", args.eval_steps);
  at_least("perDeviceEvalBatchSize", args.per_device_eval_batch_size, 1);
  at_least("validationSplitPercentage", args.validation_split_percentage, 0, true);
  at_most("validationSplitPercentage", args.validation_split_percentage, 99);

  if (args.group_by_length.value_or(false) && !args.shuffle.value_or(true))
    out.error("training.groupByLength",
              "training.shuffle is false, and groups of one length are drawn from a random order",
              "leave one of the two out");

  struct Choice {
    const char* name;
    const std::optional<std::string>& value;
    std::vector<std::string> built, known;
  };
  for (const Choice& choice :
       {Choice{"saveStrategy", args.save_strategy, {"no", "steps", "epoch", "best"}, {}},
        Choice{"loggingStrategy", args.logging_strategy, {"no", "steps", "epoch"}, {}},
        Choice{"evaluationStrategy", args.evaluation_strategy, {"no", "steps", "epoch"}, {}},
        Choice{"chatTemplate",
               args.chat_template,
               {"auto", "chatml", "qwen", "qwen2.5", "llama2", "llama3", "mistral"},
               {}},
        Choice{"lossNormalization", args.loss_normalization, {"token", "rank", "micro-batch"}, {}},
        Choice{"device", args.device, {"auto", "cpu", "cuda"}, {}}}) {
    if (!choice.value || std::ranges::find(choice.built, *choice.value) != choice.built.end())
      continue;
    const bool takes_file = std::string_view(choice.name) == "chatTemplate";
    if (takes_file && (choice.value->contains('/') || choice.value->ends_with(".jinja"))) continue;
    const bool known = std::ranges::find(choice.known, *choice.value) != choice.known.end();
    std::string expected;
    for (const std::string& one : choice.built) expected += (expected.empty() ? "" : " or ") + one;
    out.finding(
        known ? Severity::Unsupported : Severity::Error, std::string("training.") + choice.name,
        "\"" + *choice.value + "\" is not " + (known ? "built in this version" : "a choice"),
        "expected " + expected + (takes_file ? ", or a .jinja file" : ""));
  }
  const auto& normalization = args.loss_normalization;
  out.origin("loss_normalization", normalization.value_or(name_of(LossNormalization::Token)),
             normalization ? "training.lossNormalization" : kHuggingFaceDefault);
}

void check_row_length(const Source& in, Report& out) {
  const auto& asked = in.args.max_seq_length;
  const auto& positions = in.facts.positions;
  if (!asked || !positions || *asked <= *positions) return;
  const std::string of = " and the model's max_position_embeddings " + std::to_string(*positions);
  if (in.facts.positions_learned)
    out.warning("training.maxSeqLength",
                "it is " + std::to_string(*asked) + of + ": longer rows are cut there",
                "the model has no parameters for later positions");
  else
    out.warning("training.maxSeqLength",
                "it is " + std::to_string(*asked) + of +
                    ": the model never saw later positions, and rows are trained on there all the "
                    "same",
                "leave maxSeqLength out to cut rows at the model's length");
}

}  // namespace dsj::dsconfig
