#include "job/training_args.h"

#include <cmath>
#include <variant>
#include <vector>

#include "common/json.h"
#include "common/text.h"
#include "job/argument_table.h"

namespace dsj {
namespace {

using nlohmann::json;
using Member =
    std::variant<std::string TrainingArgs::*, std::optional<int64_t> TrainingArgs::*,
                 std::optional<double> TrainingArgs::*, std::optional<bool> TrainingArgs::*,
                 std::optional<std::string> TrainingArgs::*, std::optional<json> TrainingArgs::*,
                 std::optional<LoraArgs> TrainingArgs::*>;

struct ArgumentField {
  const char* name;   ///< camelCase
  const char* alias;  ///< another name that users write, or null
  Member member;
};

/// One row per field. Reading, writing and "did you mean" all walk this table.
const std::vector<ArgumentField>& fields() {
  using A = TrainingArgs;
  static const std::vector<ArgumentField> table = {
      {"modelNameOrPath", nullptr, &A::model_name_or_path},
      {"dataPath", nullptr, &A::data_path},
      {"outputDir", nullptr, &A::output_dir},
      {"maxSteps", nullptr, &A::max_steps},
      {"numTrainEpochs", nullptr, &A::num_train_epochs},
      {"perDeviceTrainBatchSize", nullptr, &A::per_device_train_batch_size},
      {"gradientAccumulationSteps", nullptr, &A::gradient_accumulation_steps},
      {"optim", nullptr, &A::optim},
      {"learningRate", nullptr, &A::learning_rate},
      {"weightDecay", nullptr, &A::weight_decay},
      {"adamBeta1", nullptr, &A::adam_beta1},
      {"adamBeta2", nullptr, &A::adam_beta2},
      {"adamEpsilon", nullptr, &A::adam_epsilon},
      {"maxGradNorm", nullptr, &A::max_grad_norm},
      {"warmupRatio", nullptr, &A::warmup_ratio},
      {"warmupSteps", nullptr, &A::warmup_steps},
      {"lrSchedulerType", nullptr, &A::lr_scheduler_type},
      {"lrSchedulerKwargs", nullptr, &A::lr_scheduler_kwargs},
      {"seed", nullptr, &A::seed},
      {"bf16", nullptr, &A::bf16},
      {"fp16", nullptr, &A::fp16},
      {"dataSeed", nullptr, &A::data_seed},
      {"loggingStrategy", nullptr, &A::logging_strategy},
      {"loggingSteps", nullptr, &A::logging_steps},
      {"loggingFirstStep", nullptr, &A::logging_first_step},
      {"saveStrategy", nullptr, &A::save_strategy},
      {"saveSteps", nullptr, &A::save_steps},
      {"saveTotalLimit", nullptr, &A::save_total_limit},
      {"loadBestModelAtEnd", nullptr, &A::load_best_model_at_end},
      {"metricForBestModel", nullptr, &A::metric_for_best_model},
      {"greaterIsBetter", nullptr, &A::greater_is_better},
      {"earlyStoppingPatience", nullptr, &A::early_stopping_patience},
      {"earlyStoppingThreshold", nullptr, &A::early_stopping_threshold},
      {"reportTo", nullptr, &A::report_to},
      {"loggingDir", nullptr, &A::logging_dir},
      {"runName", nullptr, &A::run_name},
      {"evaluationStrategy", "evalStrategy", &A::evaluation_strategy},
      {"evalSteps", nullptr, &A::eval_steps},
      {"evalDelay", nullptr, &A::eval_delay},
      {"evalOnStart", nullptr, &A::eval_on_start},
      {"perDeviceEvalBatchSize", nullptr, &A::per_device_eval_batch_size},
      {"evalDataPath", nullptr, &A::eval_data_path},
      {"validationSplitPercentage", nullptr, &A::validation_split_percentage},
      {"gradientCheckpointing", nullptr, &A::gradient_checkpointing},
      {"maxSeqLength", "modelMaxLength", &A::max_seq_length},
      {"resumeFromCheckpoint", nullptr, &A::resume_from_checkpoint},
      {"ignoreDataSkip", nullptr, &A::ignore_data_skip},
      {"overwriteOutputDir", nullptr, &A::overwrite_output_dir},
      {"shuffle", nullptr, &A::shuffle},
      {"packing", nullptr, &A::packing},
      {"groupByLength", nullptr, &A::group_by_length},
      {"chatTemplate", nullptr, &A::chat_template},
      {"eosToken", nullptr, &A::eos_token},
      {"lossNormalization", nullptr, &A::loss_normalization},
      {"maxSkippedSteps", nullptr, &A::max_skipped_steps},
      {"exportNotFinite", nullptr, &A::export_not_finite},
      {"device", nullptr, &A::device},
      {"lora", nullptr, &A::lora},
  };
  return table;
}

std::unexpected<Error> wrong_type(const json& value, const char* expected,
                                  const std::string& path) {
  return bad_input("found " + json_brief(value) + ", expected " + expected, path);
}

Status set(std::string& field, const json& value, const std::string& path) {
  if (!value.is_string()) return wrong_type(value, "a string", path);
  field = value.get<std::string>();
  return {};
}

Status set(std::optional<std::string>& field, const json& value, const std::string& path) {
  // saveStrategy: no. YAML 1.1 readers, and people, turn "no" into false.
  if (value.is_boolean() && !value.get<bool>()) {
    field = "no";
    return {};
  }
  if (!value.is_string()) return wrong_type(value, "a string", path);
  field = value.get<std::string>();
  return {};
}

/// Takes an object, or the text of one from a command line.
Status set(std::optional<json>& field, const json& value, const std::string& path) {
  field = value.is_string() ? json::parse(value.get<std::string>(), nullptr, false) : value;
  if (!field->is_object()) return wrong_type(value, "an object", path);
  return {};
}

Status set(std::optional<double>& field, const json& value, const std::string& path) {
  if (value.is_number()) field = value.get<double>();
  if (value.is_string()) field = text::parse_double(value.get<std::string>());
  if (!value.is_number() && !(value.is_string() && field))
    return wrong_type(value, "a number", path);
  if (!std::isfinite(*field)) return wrong_type(value, "a finite number", path);
  return {};
}

Status set(std::optional<int64_t>& field, const json& value, const std::string& path) {
  field.reset();
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX)
    return wrong_type(value, "a whole number", path);
  if (value.is_number_integer()) field = value.get<int64_t>();
  if (value.is_number_float()) field = text::to_int(value.get<double>());
  if (value.is_string()) field = text::parse_int(value.get<std::string>());
  if (!field) return wrong_type(value, "a whole number", path);
  return {};
}

Status set(std::optional<bool>& field, const json& value, const std::string& path) {
  field.reset();
  if (value.is_boolean()) field = value.get<bool>();
  if (value.is_string()) field = text::parse_bool(value.get<std::string>());
  if (value.is_number_integer() && (value == 0 || value == 1)) field = value == 1;
  if (!field) return wrong_type(value, "true or false", path);
  return {};
}

Status set(std::optional<LoraArgs>& field, const json& value, const std::string& path) {
  DSJ_TRY(field, lora_args_from_json(value, path));
  return {};
}

Status read_field(TrainingArgs& args, const std::string& key, const json& value,
                  const std::string& path, std::vector<const ArgumentField*>& seen) {
  for (const ArgumentField& field : fields()) {
    if (key != field.name && !(field.alias && key == field.alias)) continue;
    for (const ArgumentField* earlier : seen)
      if (earlier == &field)
        return bad_input(std::string("\"") + field.name + "\" is given twice, under two names",
                         path, std::string("keep \"") + field.name + "\" only");
    seen.push_back(&field);
    if (value.is_null()) return {};
    return std::visit([&](auto member) { return set(args.*member, value, path); }, field.member);
  }
  const ArgumentRow* row = argument_row_of_field(key);
  if (row != nullptr && row->verdict == ArgumentVerdict::Refused)
    return bad_input(std::string(row->reason), path);
  std::vector<std::string> names;
  for (const ArgumentField& field : fields()) names.emplace_back(field.name);
  std::string hint = text::did_you_mean(key, names);
  return bad_input("\"" + key + "\" is not a training argument", path,
                   hint.empty() ? "remove it" : hint);
}

}  // namespace

Result<TrainingArgs> training_args_from_json(const json& object, const std::string& path) {
  if (!object.is_object()) return wrong_type(object, "an object of training arguments", path);
  TrainingArgs args;
  std::vector<const ArgumentField*> seen;
  for (const auto& [key, value] : object.items())
    DSJ_TRY_STATUS(read_field(args, key, value, path.empty() ? key : path + "." + key, seen));
  return args;
}

json to_json(const TrainingArgs& args) {
  json object = json::object();
  for (const ArgumentField& field : fields()) {
    std::visit(
        [&](auto member) {
          const auto& value = args.*member;
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
            if (!value.empty()) object[field.name] = value;
          } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>,
                                              std::optional<LoraArgs>>) {
            if (value) object[field.name] = to_json(*value);
          } else if (value) {
            object[field.name] = *value;
          }
        },
        field.member);
  }
  return object;
}

const std::vector<std::string>& training_arg_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const ArgumentField& field : fields()) list.emplace_back(field.name);
    return list;
  }();
  return names;
}

bool is_training_switch(const std::string& name) {
  for (const ArgumentField& field : fields())
    if (name == field.name)
      return std::holds_alternative<std::optional<bool> TrainingArgs::*>(field.member);
  return false;
}

}  // namespace dsj
