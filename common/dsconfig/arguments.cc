// The rules of the training arguments, and resolve(), which runs the parts in order.
#include <algorithm>

#include "common/dsconfig/resolver.h"
#include "common/text.h"

namespace dsj::dsconfig {

using Severity = Finding::Severity;

void Resolver::arguments() {
  const auto at_least = [&](const char* name, const auto& value, double least, bool above = false) {
    if (!value) return;
    const double found = static_cast<double>(*value);
    if (above ? found > least : found >= least) return;
    report(Severity::Error, std::string("training.") + name,
           "found " + text::number(found) + ", expected " + (above ? "more than " : "at least ") +
               text::number(least));
  };
  const auto at_most = [&](const char* name, const std::optional<double>& value, double most) {
    if (value && *value > most)
      report(Severity::Error, std::string("training.") + name,
             "found " + text::number(*value) + ", expected at most " + text::number(most));
  };
  const auto below_one = [&](const char* name, const std::optional<double>& value) {
    if (value && *value >= 1)
      report(Severity::Error, std::string("training.") + name,
             "found " + text::number(*value) + ", expected less than 1");
  };
  at_least("maxSteps", args_.max_steps, -1);
  at_least("numTrainEpochs", args_.num_train_epochs, 0, true);
  at_least("perDeviceTrainBatchSize", args_.per_device_train_batch_size, 1);
  at_least("gradientAccumulationSteps", args_.gradient_accumulation_steps, 1);
  at_least("learningRate", args_.learning_rate, 0);
  at_least("weightDecay", args_.weight_decay, 0);
  at_least("adamBeta1", args_.adam_beta1, 0);
  at_least("adamBeta2", args_.adam_beta2, 0);
  below_one("adamBeta1", args_.adam_beta1);
  below_one("adamBeta2", args_.adam_beta2);
  at_least("adamEpsilon", args_.adam_epsilon, 0);
  at_least("warmupRatio", args_.warmup_ratio, 0);
  at_most("warmupRatio", args_.warmup_ratio, 1);
  at_least("warmupSteps", args_.warmup_steps, 0);
  at_least("seed", args_.seed, 0);
  at_least("loggingSteps", args_.logging_steps, 1);
  at_least("saveSteps", args_.save_steps, 1);
  at_least("saveTotalLimit", args_.save_total_limit, 1);
  at_least("maxSeqLength", args_.max_seq_length, 2);
  at_least("evalSteps", args_.eval_steps, 1);
  at_least("perDeviceEvalBatchSize", args_.per_device_eval_batch_size, 1);
  at_least("validationSplitPercentage", args_.validation_split_percentage, 0, true);
  at_most("validationSplitPercentage", args_.validation_split_percentage, 99);

  struct Choice {
    const char* name;
    const std::optional<std::string>& value;
    std::vector<std::string> built, known;
  };
  for (const Choice& choice :
       {Choice{"saveStrategy", args_.save_strategy, {"no", "steps", "epoch"}, {"best"}},
        Choice{"evaluationStrategy", args_.evaluation_strategy, {"no", "steps", "epoch"}, {}},
        Choice{"chatTemplate",
               args_.chat_template,
               {"auto", "chatml", "qwen", "qwen2.5", "llama2", "llama3", "mistral"},
               {}},
        Choice{"lossNormalization", args_.loss_normalization, {"micro-batch"}, {"token"}}}) {
    if (!choice.value || std::ranges::find(choice.built, *choice.value) != choice.built.end())
      continue;
    const bool known = std::ranges::find(choice.known, *choice.value) != choice.known.end();
    std::string expected;
    for (const std::string& one : choice.built) expected += (expected.empty() ? "" : " or ") + one;
    report(known ? Severity::Unsupported : Severity::Error, std::string("training.") + choice.name,
           "\"" + *choice.value + "\" is not " + (known ? "built in this version" : "a choice"),
           "expected " + expected);
  }
}

bool Resolution::ok() const {
  return std::ranges::none_of(
      findings, [](const Finding& finding) { return finding.severity == Severity::Error; });
}

bool Resolution::runnable() const {
  return std::ranges::none_of(
      findings, [](const Finding& finding) { return finding.severity != Severity::Warning; });
}

namespace {

Resolution run(const Checked& checked, const TrainingArgs& training, const Facts& facts,
               bool alone) {
  Resolution resolution;
  resolution.findings = checked.findings;
  Resolver resolver(checked, training, facts, alone, resolution);
  resolver.arguments();
  resolver.batch();
  resolver.precision();
  resolver.zero();
  resolver.optimizer();
  resolver.offload();
  resolver.steps();
  resolver.scheduler();
  resolver.cadences();
  resolver.observe();
  resolution.complete = resolution.ok() && !resolver.incomplete();
  return resolution;
}

}  // namespace

Resolution resolve(const nlohmann::json& ds_config, const TrainingArgs& training,
                   const Facts& facts) {
  return run(check(ds_config), training, facts, false);
}

Resolution resolve_alone(const nlohmann::json& ds_config) {
  const Checked checked = check(ds_config);
  const auto given = [&](const char* path) -> int64_t {
    const nlohmann::json* value = checked.find(path);
    return value != nullptr && value->is_number_integer() ? value->get<int64_t>() : 0;
  };
  const int64_t train = given("train_batch_size");
  const int64_t micro = given("train_micro_batch_size_per_gpu");
  const int64_t accumulation = given("gradient_accumulation_steps");
  int64_t world = 1;  // only all three together decide it
  int64_t per_step = 0;
  if (train > 0 && micro > 0 && accumulation > 0 &&
      !__builtin_mul_overflow(micro, accumulation, &per_step) && train % per_step == 0)
    world = std::min<int64_t>(train / per_step, INT32_MAX);
  const Facts facts{.world_size = static_cast<int>(world)};
  Resolution resolution = run(checked, {}, facts, true);
  if (train > 0 && micro > 0 && accumulation > 0)
    for (Finding& finding : resolution.findings)
      if (finding.path == "train_batch_size" && finding.severity == Severity::Error)
        finding.message = "no world size makes this hold; " + finding.message;
  return resolution;
}

}  // namespace dsj::dsconfig
