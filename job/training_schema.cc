#include "job/training_schema.h"

#include <cmath>

#include "common/json.h"
#include "common/text.h"
#include "job/argument_table.h"

namespace dsj {
namespace {

using namespace range;

TrainingField row(const char* name, TrainingMember member, const char* description,
                  NumberRange range = {}, std::string_view choices = {},
                  const char* alias = nullptr, bool takes_flag = false) {
  return {name, member, description, range, choices, alias, takes_flag};
}

}  // namespace

const std::vector<TrainingField>& training_fields() {
  using A = TrainingArgs;
  static const std::vector<TrainingField> table = {
      row("modelNameOrPath", &A::model_name_or_path,
          "A Hugging Face model directory, an absolute path in the container."),
      row("dataPath", &A::data_path,
          "Training rows: a file, a directory, a pattern such as /data/*.jsonl, or several with "
          "commas between; absolute paths in the container."),
      row("outputDir", &A::output_dir,
          "The directory of metrics, logs, checkpoints and the model, an absolute path in the "
          "container. It must outlive the pods."),
      row("maxSteps", &A::max_steps, "Optimizer steps. Above 0 it overrides numTrainEpochs.",
          from(-1)),
      row("numTrainEpochs", &A::num_train_epochs, "Passes over the rows; 3 by default.", above(0)),
      row("perDeviceTrainBatchSize", &A::per_device_train_batch_size,
          "Rows per rank and micro-batch; 8 by default.", from(1)),
      row("gradientAccumulationSteps", &A::gradient_accumulation_steps,
          "Micro-batches per optimizer step; 1 by default.", from(1)),
      row("optim", &A::optim,
          "A Hugging Face optimizer name, adamw_torch by default; read when the ds_config has no "
          "optimizer."),
      row("learningRate", &A::learning_rate, "The peak learning rate; 5e-5 by default.", from(0)),
      row("weightDecay", &A::weight_decay, "0 by default.", from(0)),
      row("adamBeta1", &A::adam_beta1, "Decay of Adam's first moment; 0.9 by default.",
          from_below(0, 1)),
      row("adamBeta2", &A::adam_beta2, "Decay of Adam's second moment; 0.999 by default.",
          from_below(0, 1)),
      row("adamEpsilon", &A::adam_epsilon, "Added to Adam's denominator; 1e-8 by default.",
          from(0)),
      row("maxGradNorm", &A::max_grad_norm,
          "The gradient is clipped to this norm; 1.0 by default."),
      row("warmupRatio", &A::warmup_ratio,
          "Share of the steps in which the learning rate warms up; 0 by default.", from_to(0, 1)),
      row("warmupSteps", &A::warmup_steps,
          "Steps in which the learning rate warms up, or below 1 a share of the run. Above 0 it "
          "overrides warmupRatio.",
          from(0)),
      row("lrSchedulerType", &A::lr_scheduler_type,
          "A Hugging Face schedule, linear by default; read when the ds_config has no scheduler."),
      row("lrSchedulerKwargs", &A::lr_scheduler_kwargs,
          "Arguments of that schedule: an object, or its JSON text."),
      row("seed", &A::seed, "Seed of the order of rows and of dropout; 42 by default.", from(0)),
      row("bf16", &A::bf16, "Computes in bfloat16, with fp32 master weights."),
      row("fp16", &A::fp16, "Computes in float16, with fp32 master weights and a loss scale."),
      row("dataSeed", &A::data_seed, "Seed of the order of rows; seed by default.", from(0)),
      row("loggingStrategy", &A::logging_strategy, "\"no\", steps or epoch; steps by default.",
          kAny, "no steps epoch", nullptr, true),
      row("loggingSteps", &A::logging_steps,
          "Steps between two step lines, or below 1 a share of the run; 1 by default. "
          "metrics.jsonl has every step.",
          from(0)),
      row("loggingFirstStep", &A::logging_first_step, "Logs step 1 as well."),
      row("saveStrategy", &A::save_strategy, "\"no\", steps, epoch or best.", kAny,
          "no steps epoch best", nullptr, true),
      row("saveSteps", &A::save_steps,
          "Steps between two checkpoints, or below 1 a share of the run; 500 by default.", from(0)),
      row("saveTotalLimit", &A::save_total_limit,
          "Checkpoints that are kept. Older ones are deleted, but never the best. 0 keeps all."),
      row("saveOnlyModel", &A::save_only_model,
          "What is saved between the steps is the model, in models/checkpoint-STEP, and no run can "
          "continue from it. A stop still saves a whole checkpoint."),
      row("loadBestModelAtEnd", &A::load_best_model_at_end,
          "Exports the model of the best checkpoint, by eval_loss."),
      row("metricForBestModel", &A::metric_for_best_model,
          "loss, the only metric of an evaluation."),
      row("greaterIsBetter", &A::greater_is_better,
          "Whether a larger metric is better; false for a loss."),
      row("earlyStoppingPatience", &A::early_stopping_patience,
          "Evaluations in a row without an improvement that end the run.", from(1)),
      row("earlyStoppingThreshold", &A::early_stopping_threshold,
          "An improvement must be larger than this; 0 by default.", from(0)),
      row("reportTo", &A::report_to, "tensorboard, all or none; several are separated by commas."),
      row("loggingDir", &A::logging_dir,
          "The directory of TensorBoard's files; outputDir/runs by default."),
      row("runName", &A::run_name, "Names tensorboard's folder; run by default."),
      row("evaluationStrategy", &A::evaluation_strategy, "\"no\", steps or epoch.", kAny,
          "no steps epoch", "evalStrategy", true),
      row("evalSteps", &A::eval_steps,
          "Steps between two evaluations, or below 1 a share of the run; loggingSteps by default.",
          from(0)),
      row("evalDelay", &A::eval_delay,
          "Steps before the first evaluation, or epochs with evaluationStrategy epoch.", from(0)),
      row("evalOnStart", &A::eval_on_start, "Evaluates before the first step."),
      row("perDeviceEvalBatchSize", &A::per_device_eval_batch_size,
          "Rows per rank and evaluation batch; 8 by default.", from(1)),
      row("evalDataPath", &A::eval_data_path,
          "Evaluation rows, an absolute path in the container."),
      row("evalDataset", &A::eval_dataset,
          "Instead of evalDataPath: names of data sets in dataPath's dataset_info.json, separated "
          "by "
          "commas, whose rows are evaluated on."),
      row("validationSplitPercentage", &A::validation_split_percentage,
          "Instead of evalDataPath: this share of dataPath, from its first row on, is held out.",
          from_to(0, 99)),
      row("valSize", &A::val_size,
          "Instead of evalDataPath: number of rows of dataPath, or below 1 their share, that are "
          "held out, drawn by seed.",
          from(0)),
      row("dataset", &A::dataset,
          "Names of data sets in dataPath's dataset_info.json (LLaMA-Factory), separated by "
          "commas."),
      row("datasetColumns", &A::dataset_columns,
          "The names of the rows' fields: an object of dataset_info.json's columns and tags, or "
          "its JSON text."),
      row("maxSamples", &A::max_samples,
          "How many rows are read of each data set, from its "
          "first.",
          from(1)),
      row("maxEvalSamples", &A::max_eval_samples,
          "How many rows are read of evalDataPath, from "
          "its first.",
          from(1)),
      row("mixStrategy", &A::mix_strategy,
          "How several data sets are combined: concat, one after the other; interleave_under, "
          "alternating until the first ends; interleave_over, until all have ended.",
          kAny, "concat interleave_under interleave_over"),
      row("datasetWeights", &A::dataset_weights,
          "The weights with which interleaving draws the data sets, separated by commas.", kAny, "",
          "interleaveProbs"),
      row("gradientCheckpointing", &A::gradient_checkpointing,
          "Recomputes activations in the backward pass to save memory."),
      row("maxSeqLength", &A::max_seq_length, "Rows are cut to this many tokens; 2048 by default.",
          from_to(2, 1 << 24), "", "modelMaxLength"),
      row("truncationSide", &A::truncation_side,
          "Where a row that is too long is cut: right, or left, which keeps its end; right by "
          "default.",
          kAny, "right left"),
      row("skipBadRows", &A::skip_bad_rows,
          "Leaves out rows that cannot be read, and counts them; without it they stop the start."),
      row("resumeFromCheckpoint", &A::resume_from_checkpoint,
          "A checkpoint directory from which the run begins, instead of the newest one of "
          "outputDir. Later attempts continue from the run's own newest.",
          kAny, "", nullptr, true),
      row("ignoreDataSkip", &A::ignore_data_skip,
          "Continues from a checkpoint of other data, with the first row of the new data. False "
          "by default: such a checkpoint is refused."),
      row("dataloaderDropLast", &A::dataloader_drop_last,
          "An epoch leaves out the rows that do not fill a micro-batch of every rank, as "
          "Trainer's; "
          "false by default."),
      row("overwriteOutputDir", &A::overwrite_output_dir,
          "Known and refused in a cluster: name another outputDir."),
      row("shuffle", &A::shuffle, "Draws a new order of the rows in each epoch; true by default."),
      row("packing", &A::packing,
          "Lays rows end to end into maxSeqLength tokens; each attends only to itself."),
      row("packingStrategy", &A::packing_strategy,
          "Of packing, as TRL: bfd, rows that are too long are cut (the default); bfd_split, what "
          "is "
          "cut off is packed, too; wrapped, one text without borders, cut every maxSeqLength "
          "tokens.",
          kAny, "bfd bfd_split wrapped"),
      row("groupByLength", &A::group_by_length,
          "Puts rows of similar length into one batch, as Hugging Face's group_by_length."),
      row("chatTemplate", &A::chat_template,
          "auto: the model's own, for chat rows. model: the model's own, also for questions and "
          "answers. chatml, qwen, llama3 and others, a .jinja file, or the text of a template: for "
          "both.",
          kAny, "auto model chatml qwen qwen2.5 llama2 llama3 mistral"),
      row("chatDate", &A::chat_date,
          "YYYY-MM-DD: the day that a chat template's strftime_now shows; today by default."),
      row("defaultSystem", &A::default_system,
          "The system text of alpaca and chat rows that have none."),
      row("trainOnInputs", &A::train_on_inputs,
          "Makes every token of a row a target, prompts too; false by default."),
      row("maskHistory", &A::mask_history,
          "Only the last answer of a row is a target; false by default."),
      row("trainOnEos", &A::train_on_eos,
          "Which tokens that end turns are targets: turn (of each answer), all, last, none.", kAny,
          "turn all last none"),
      row("eosToken", &A::eos_token,
          "The token that ends answers, in the rows and in the exported model; the model's own by "
          "default."),
      row("lossNormalization", &A::loss_normalization,
          "token: the loss is the mean of the step's targets; rank: of the ranks' means; "
          "micro-batch: of the micro-batches' means.",
          kAny, "token rank micro-batch"),
      row("objective", &A::objective,
          "What is learned: sft, the answers of the rows (the default); dpo or orpo, of two "
          "answers "
          "the chosen one; kto, answers marked good or bad; reward, a score of whole answers; "
          "pretrain, the rows' whole texts.",
          kAny, "sft dpo orpo kto pretrain reward"),
      row("beta", &A::beta,
          "Of dpo and kto: how closely the model stays with the one that it starts from; of orpo: "
          "the "
          "weight of the odds ratio. 0.1 by default.",
          above(0), "", "prefBeta"),
      row("lossType", &A::loss_type,
          "The loss of dpo: sigmoid (the default), hinge, ipo and others of TRL; of kto: kto (the "
          "default) or apo_zero_unpaired; nll is that of sft, dft the "
          "same where each token counts by its probability.",
          kAny,
          "nll dft sigmoid hinge ipo robust exo_pair nca_pair bco_pair sppo_hard apo_zero apo_down "
          "sigmoid_norm kto apo_zero_unpaired",
          "prefLoss"),
      row("labelSmoothing", &A::label_smoothing,
          "Of dpo: the share of pairs whose answers are taken to be swapped; 0 by default.",
          from_below(0, 0.5), "", "dpoLabelSmoothing"),
      row("rpoAlpha", &A::rpo_alpha,
          "Of dpo: the weight of the mean loss of the chosen answers' tokens beside its own; 0 by "
          "default.",
          from(0)),
      row("centerRewardsCoefficient", &A::center_rewards_coefficient,
          "Of reward: the weight of the squared sum of a pair's scores, which centers them; 0 by "
          "default.",
          from(0)),
      row("maxPromptLength", &A::max_prompt_length,
          "Of dpo, orpo and kto: a longer prompt keeps its last tokens, so many. Unset: all.",
          from(1)),
      row("desirableWeight", &A::desirable_weight,
          "Of kto: the weight of the loss of good answers; 1 by default.", from(0), "",
          "ktoChosenWeight"),
      row("undesirableWeight", &A::undesirable_weight,
          "Of kto: the weight of the loss of bad answers; 1 by default.", from(0), "",
          "ktoRejectedWeight"),
      row("labelSmoothingFactor", &A::label_smoothing_factor,
          "Of sft: the share of a target that is spread over the whole vocabulary; 0 by default.",
          from_below(0, 1)),
      row("routerAuxLossCoef", &A::router_aux_loss_coef,
          "Of a mixture of experts: the weight of the loss that balances the experts' loads; 0: no "
          "such loss. Unset: as config.json says.",
          from(0)),
      row("neftuneNoiseAlpha", &A::neftune_noise_alpha,
          "NEFTune: noise of this size on the embeddings while training; none by default.",
          from(0)),
      row("maxSkippedSteps", &A::max_skipped_steps,
          "This many steps in a row without a finite loss and gradient end the job; 20 by "
          "default, 0: never.",
          from(0)),
      row("exportNotFinite", &A::export_not_finite,
          "Also exports a model with weights that are not finite; false by default."),
      row("device", &A::device,
          "auto (a GPU if there is one), cpu, or cuda: a GPU, or the job is refused.", kAny,
          "auto cpu cuda"),
      row("lora", &A::lora,
          "Trains low-rank adapters instead of the whole model, with PEFT's names and defaults."),
      row("trainableParameters", &A::trainable_parameters,
          "Trains the parameters whose name this regular expression matches from its start; all "
          "others are frozen. Without lora."),
      row("trainableLayers", &A::trainable_layers,
          "Of the layers trains the last N only, or with -N the first; what is in no layer is "
          "frozen unless trainableParameters matches it. Without lora."),
  };
  return table;
}

namespace {

using nlohmann::json;
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
  // saveStrategy: no. Readers of YAML 1.1, and users, write "no" as false.
  if (value.is_boolean() && !value.get<bool>()) {
    field = "no";
    return {};
  }
  if (!value.is_string()) return wrong_type(value, "a string", path);
  field = value.get<std::string>();
  return {};
}

/// Takes an object, or its text from a command line.
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
                  const std::string& path, std::vector<const TrainingField*>& seen) {
  for (const TrainingField& field : training_fields()) {
    if (key != field.name && !(field.alias && key == field.alias)) continue;
    for (const TrainingField* earlier : seen)
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
  for (const TrainingField& field : training_fields()) names.emplace_back(field.name);
  std::string hint = text::did_you_mean(key, names);
  return bad_input("\"" + key + "\" is not a training argument", path,
                   hint.empty() ? "remove it" : hint);
}

}  // namespace

Result<TrainingArgs> training_args_from_json(const json& object, const std::string& path) {
  if (!object.is_object()) return wrong_type(object, "an object of training arguments", path);
  TrainingArgs args;
  std::vector<const TrainingField*> seen;
  for (const auto& [key, value] : object.items())
    DSJ_TRY_STATUS(read_field(args, key, value, path.empty() ? key : path + "." + key, seen));
  return args;
}

json to_json(const TrainingArgs& args) {
  json object = json::object();
  for (const TrainingField& field : training_fields()) {
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
    for (const TrainingField& field : training_fields()) list.emplace_back(field.name);
    return list;
  }();
  return names;
}

std::optional<double> number_of(const TrainingField& field, const TrainingArgs& args) {
  if (const auto* whole = std::get_if<std::optional<int64_t> TrainingArgs::*>(&field.member))
    return args.**whole;
  if (const auto* number = std::get_if<std::optional<double> TrainingArgs::*>(&field.member))
    return args.**number;
  return std::nullopt;
}

std::optional<std::string> text_of(const TrainingField& field, const TrainingArgs& args) {
  const auto* text = std::get_if<std::optional<std::string> TrainingArgs::*>(&field.member);
  return text ? args.**text : std::nullopt;
}

bool is_training_switch(const std::string& name) {
  for (const TrainingField& field : training_fields())
    if (name == field.name)
      return std::holds_alternative<std::optional<bool> TrainingArgs::*>(field.member);
  return false;
}

}  // namespace dsj
