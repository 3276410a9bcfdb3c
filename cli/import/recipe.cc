#include "cli/import/recipe.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/import/trained_names.h"
#include "common/json.h"
#include "common/path_list.h"
#include "common/text.h"
#include "job/spec/job.h"

namespace dsj::jobimport {
namespace {

using nlohmann::json;

bool is_empty(const json& value) {
  return value.is_null() || value == "" || value == json::array() || value == json::object();
}

/// Keys that determine what is learnt, with the values that are built; other values are refused.
const std::vector<std::pair<const char*, std::vector<std::string>>> kDecides = {
    {"stage", {"sft", "pt", "dpo", "kto"}}, {"finetuning_type", {"full", "lora", "freeze"}},
    {"adapter", {"lora", "qlora"}},         {"rl", {"dpo", "ipo", "orpo", "kto"}},
    {"reward_model", {"False", "True"}},    {"process_reward_model", {"False"}}};

/// Common to both tools: keys become arguments, and these become a manifest.
class RecipeImport {
 public:
  RecipeImport(Files& files, const json& document, const std::string& source)
      : files_(files), document_(document) {
    imported_.origin = source;
  }

  Result<Imported> llamafactory() {
    if (json_flag(document_, "do_predict") && !json_flag(document_, "do_train"))
      return bad_input("it answers questions (do_predict) and does not train", imported_.origin,
                       "dsj generate answers the questions of a data file");
    if (!json_flag(document_, "do_train") && !says("dataset") && !says("stage")) {
      if (says("export_dir"))
        return bad_input("it exports a model (export_dir) and does not train", imported_.origin,
                         "dsj merge --base MODEL --adapter ADAPTER --output DIR");
      if (says("infer_backend"))
        return bad_input("it answers questions (infer_backend) and does not train",
                         imported_.origin, "dsj chat MODEL, or dsj generate");
    }
    const json& dataset = json_child(document_, "dataset");
    const std::string datasets = is_empty(dataset) ? "" : argument_word(dataset);
    const bool adapters = !says("finetuning_type") || document_["finetuning_type"] == "lora";
    for (const auto& [key, value] : document_.items()) {
      if (is_empty(value) || key == "dataset" || key == "dataset_dir") continue;
      if (key == "finetuning_type" && value == "freeze") {
        DSJ_TRY_STATUS(llamafactory_freeze());
      } else if (is_of_freeze(key)) {
        if (json_text(document_, "finetuning_type") != "freeze")
          lose(key, "acts with finetuning_type freeze only");
      } else if (!adapters && is_of_lora(key)) {
        lose(key, "acts with finetuning_type lora only");
      } else if (key == "additional_target") {
        give("lora_modules_to_save", argument_word(value));
      } else if (key == "template") {
        // It renders every row, and may differ from the model's own template of the same name.
        if (value != "alpaca") give("chat_template", "model");
        if (value != "alpaca")
          note("template " + argument_word(value) +
               ": the model's own chat template is used, also for alpaca rows; `dsj data show` "
               "prints the rows as they are read");
      } else if (key == "pure_bf16") {
        give("bf16", argument_word(value));
        if (value == true) note("pure_bf16 is read as bf16: masters and states are fp32");
      } else if (key == "pref_loss" && json_text(document_, "stage") == "kto") {
        lose(key, "acts with stage dpo only");
      } else if (key == "pref_loss" && value == "orpo") {
        give("objective", "orpo");
      } else if (key == "pref_loss" && value == "kto_pair") {
        give("objective", "kto");
        note(
            "pref_loss kto_pair: objective kto judges the two answers of a pair one by one, as "
            "TRL's KTOTrainer; TRL has dropped kto_pair");
      } else if (key == "stage" && value == "dpo" && pref_loss_is_the_objective()) {
        continue;
      } else if (key == "val_size") {
        validation(value);
      } else if (key == "eval_dataset") {
        if (const auto other = no_file(argument_word(value)))
          lose(key, *other + " is not a file in dataset_info.json");
        else
          give(key, argument_word(value));
      } else {
        give(key, argument_word(value));
      }
    }
    if (adapters) llamafactory_adapters();
    const bool packing = json_flag(document_, "packing");
    if (json_text(document_, "stage") == "pt" && (packing || !says("packing"))) {
      if (!packing) give("packing", "true");
      give("packing_strategy", "wrapped");
      note(
          "stage pt: as in LLaMA-Factory the texts are joined, 1,000 at a time, and cut every "
          "cutoff_len tokens. The last part of each 1,000 is trained on; LLaMA-Factory drops it, "
          "and writes the "
          "tokenizer's begin token, if it has one, over each row's first token");
    } else if (packing && !json_flag(document_, "neat_packing")) {
      note(
          "packing: a row attends to itself alone, as with LLaMA-Factory's neat_packing; without "
          "it "
          "LLaMA-Factory's rows see the rows before them in the pack");
    }
    if (!datasets.empty()) {
      if (const auto other = no_file(datasets)) {
        need("spec.training.dataPath", "the data set " + *other + " is not a file of " +
                                           dataset_directory() + "/dataset_info.json");
      } else {
        give("dataset_dir", dataset_directory());
        give("dataset", datasets);
      }
    }
    return finish_line("llamafactory-cli starts one rank per GPU");
  }

  Result<Imported> axolotl();

 private:
  using Taker = void (*)(RecipeImport& in, const std::string& key, const json& value);
  using Takers = std::map<std::string, Taker>;
  static const Takers& axolotl_keys();
  void axolotl_datasets(const std::string& key, const json& value);
  void axolotl_adapter(const std::string& key, const json& value);
  void axolotl_unfrozen(const std::string& key, const json& value);

  double number(const char* key, double otherwise) const {
    const json value = document_.value(key, json());
    return value.is_number() ? value.get<double>() : otherwise;
  }
  void give(const std::string& argument, const std::string& value) {
    line_.push_back("--" + argument + "=" + value);
  }
  bool says(const char* key) const { return !is_empty(json_child(document_, key)); }
  void note(std::string text) { imported_.left_open.push_back(std::move(text)); }
  void lose(const std::string& key, const std::string& why) {
    imported_.not_carried.push_back(key + ": " + why);
  }
  /// Without it the run would learn something else: the import fails.
  void refuse(const std::string& key, const std::string& why) {
    if (!refused_) refused_ = bad_input(why, key).error();
  }
  void need(const std::string& path, const std::string& why) {
    imported_.missing.push_back({path, why});
  }

  /// Whether pref_loss determines the objective: orpo and kto_pair are more than a loss of dpo.
  bool pref_loss_is_the_objective() const {
    const std::string loss = json_text(document_, "pref_loss");
    return loss == "orpo" || loss == "kto_pair";
  }

  /// LLaMA-Factory trains adapters by default, with its own defaults for them.
  void llamafactory_adapters() {
    if (!says("finetuning_type")) give("use_lora", "True");
    if (says("adapter_name_or_path")) {  // its adapter_config.json says the rest
      const std::string stage = json_text(document_, "stage");
      if (stage == "dpo" || stage == "kto")
        note(
            "adapter_name_or_path: the reference is the model with this adapter, as in TRL; "
            "LLaMA-Factory's is the model without it");
      return;
    }
    if (!says("lora_rank")) give("lora_rank", "8");
    if (!says("lora_target")) give("lora_target", "all");
    const json rank = says("lora_rank") ? document_["lora_rank"] : json(8);
    if (!says("lora_alpha") && rank.is_number_integer() && rank > 0 && rank < 1 << 20)
      give("lora_alpha", std::to_string(2 * rank.get<int64_t>()));
  }

  static bool is_of_lora(const std::string& key) {
    return key.starts_with("lora_") || key.starts_with("loraplus_") || key.starts_with("pissa_") ||
           key == "additional_target" || key == "use_rslora" || key == "use_dora" ||
           key == "create_new_adapter";
  }

  static bool is_of_freeze(const std::string& key) {
    return key == "freeze_trainable_layers" || key == "freeze_trainable_modules" ||
           key == "freeze_extra_modules";
  }

  /// LLaMA-Factory's freeze: trains these modules of the last layers (of the first ones if
  /// negative); modules outside layers only by name.
  Status llamafactory_freeze() {
    if (json_flag(document_, "use_llama_pro"))
      return bad_input("LLaMA Pro's expanded layers are not built", "use_llama_pro",
                       "write --trainable_parameters with the names of the new layers");
    const auto names = [&](const char* key) {
      return says(key) ? split_commas(argument_word(document_[key])) : std::vector<std::string>();
    };
    const auto modules = names("freeze_trainable_modules"), extra = names("freeze_extra_modules");
    std::vector<std::string> parts;
    for (const std::string& module : modules)
      parts.push_back(module == "all" ? R"(.*\.\d+\.)" : R"(.*\.\d+\.)" + literal(module));
    if (modules.empty() && !extra.empty()) parts.emplace_back(R"(.*\.\d+\.)");
    for (const std::string& module : extra) {
      if (module == "norm" || module == "embed" || module == "weight")
        return bad_input(
            "LLaMA-Factory looks for \"" + module + "\" in the names of all layers, too",
            "freeze_extra_modules", "write --trainable_parameters with whole names");
      parts.push_back(".*" + literal(module));
    }
    give("trainable_layers", says("freeze_trainable_layers")
                                 ? argument_word(document_["freeze_trainable_layers"])
                                 : "2");
    if (either(parts) != R"(.*\.\d+\.)" && !parts.empty())
      give("trainable_parameters", either(parts));
    return {};
  }

  /// In both tools a value below 1 is a share of the rows, any other a number of rows.
  void validation(const json& size) {
    const double rows = size.is_number() ? size.get<double>() : 0;
    if (rows <= 0) return;
    give("val_size", text::number(rows));
  }

  std::string dataset_directory() const {
    const std::string named = json_text(document_, "dataset_dir");
    return named.empty() ? "data" : named;
  }

  /// An entry of dataset_info.json, which is read once; null if the name is missing.
  json entry_of(const std::string& name) {
    if (!datasets_) {
      const auto text = files_.read_all(dataset_directory() + "/dataset_info.json", 16 << 20);
      datasets_ = text ? json::parse(*text, nullptr, false) : json();
    }
    const json& entry = json_child(*datasets_, name.c_str());
    return entry.is_object() ? entry : json();
  }

  /// The first of the names that has no local file in dataset_info.json; nullopt if all have
  /// one.
  std::optional<std::string> no_file(const std::string& names) {
    for (const std::string& name : split_commas(names))
      if (json_text(entry_of(name), "file_name").empty()) return name;
    return std::nullopt;
  }

  Result<Imported> finish_line(const std::string& ranks) {
    if (refused_) return std::unexpected(*refused_);
    DSJ_TRY(auto taken, jobspec::manifest_from_arguments(line_, true));
    imported_.manifest = std::move(taken.manifest);
    for (const auto& finding : taken.findings) {
      std::string text = sentence_of(finding);
      if (text.starts_with("--")) text.erase(0, 2);  // the file has keys without dashes
      imported_.not_carried.push_back(std::move(text));
    }
    json& spec = imported_.manifest["spec"];
    if (!spec.contains("deepspeed")) {
      jobspec::Sharding sharding = taken.fsdp.value_or(jobspec::Sharding{});
      if (const json& settings = json_child(document_, "fsdp_config"); !is_empty(settings)) {
        DSJ_TRY(const auto said, jobspec::sharding_of_settings(settings));
        sharding = {.stage = sharding.stage > 0 ? sharding.stage : said.stage,
                    .offload = sharding.offload || said.offload,
                    .recompute = said.recompute};
      }
      take_sharding(imported_, sharding);
    }
    if (!spec.contains("workers")) {
      spec["workers"] = {{"slotsPerWorker", 1}};
      note("spec.workers.slotsPerWorker: " + ranks + "; write the number");
    }
    const json training = spec.value("training", json::object());
    for (const char* field : {"modelNameOrPath", "outputDir"})
      if (!training.contains(field))
        need(std::string("spec.training.") + field, "the file does not name it");
    const bool asked = std::ranges::any_of(
        imported_.missing, [](const Missing& one) { return one.path == "spec.training.dataPath"; });
    if (!training.contains("dataPath") && !asked)
      need("spec.training.dataPath", "the file names no data");
    return std::move(imported_);
  }

  Files& files_;
  const json& document_;
  Imported imported_;
  std::vector<std::string> line_;
  std::optional<Error> refused_;
  std::optional<json> datasets_;  ///< content of dataset_info.json, once it was read
};

/// axolotl's keys with other names here.
constexpr std::pair<const char*, const char*> kAxolotlNames[] = {
    {"base_model", "model_name_or_path"},
    {"sequence_len", "max_seq_length"},
    {"sample_packing", "packing"},
    {"micro_batch_size", "per_device_train_batch_size"},
    {"eval_batch_size", "per_device_eval_batch_size"},
    {"num_epochs", "num_train_epochs"},
    {"optimizer", "optim"},
    {"lr_scheduler", "lr_scheduler_type"},
    {"peft_use_rslora", "use_rslora"},
    {"lora_modules_to_save", "lora_modules_to_save"},
    {"rl_beta", "beta"},
    {"orpo_alpha", "beta"},
    {"kto_desirable_weight", "desirable_weight"},
    {"kto_undesirable_weight", "undesirable_weight"},
    {"bfloat16", "bf16"},
    {"float16", "fp16"}};

/// axolotl's keys without a counterpart that do not change what is learnt.
constexpr const char* kAxolotlQuiet[] = {"model_type",
                                         "tokenizer_type",
                                         "is_llama_derived_model",
                                         "is_mistral_derived_model",
                                         "is_falcon_derived_model",
                                         "is_qwen_derived_model",
                                         "processor_type",
                                         "strict",
                                         "dataset_prepared_path",
                                         "dataset_processes",
                                         "pad_to_sequence_len",
                                         "lora_fan_in_fan_out",
                                         "xformers_attention",
                                         "flash_attention",
                                         "flash_attn_cross_entropy",
                                         "flash_attn_rms_norm",
                                         "flash_attn_fuse_qkv",
                                         "flash_attn_fuse_mlp",
                                         "eager_attention",
                                         "sdp_attention",
                                         "debug",
                                         "local_rank",
                                         "eval_table_size",
                                         "eval_max_new_tokens",
                                         "eval_sample_packing",
                                         "save_safetensors",
                                         "skip_prepare_dataset",
                                         "gradient_checkpointing_kwargs",
                                         "lora_mlp_kernel",
                                         "lora_qkv_kernel",
                                         "lora_o_kernel",
                                         "base_model_config",
                                         "base_model_ignore_patterns",
                                         "wandb_watch",
                                         "wandb_name",
                                         "wandb_log_model",
                                         "wandb_entity",
                                         "shuffle_merged_datasets"};

/// Defaults of axolotl's schema that differ from Trainer's.
constexpr std::pair<const char*, const char*> kAxolotlDefaults[] = {{"num_epochs", "1"},
                                                                    {"micro_batch_size", "1"},
                                                                    {"sequence_len", "512"},
                                                                    {"output_dir", "./model-out"},
                                                                    {"lr_scheduler", "cosine"}};

/// Whether a plugin changes only how fast a step is, where it runs or what is reported.
bool learns_the_same(const std::string& plugin) {
  for (const char* name :
       {"liger", "cut_cross_entropy", "kernels", "expert_parallel", "swanlab", "lm_eval"})
    if (plugin.find(name) != std::string::npos) return true;
  return false;
}

void RecipeImport::axolotl_adapter(const std::string& key, const json& value) {
  if (value == "lora" || value == "qlora") give("use_peft", "True");
  if (value != "qlora") return;
  const json& given = json_child(document_, "bnb_config_kwargs");
  if (document_.value("load_in_4bit", json()) != true)
    lose(key, "load_in_4bit: true is missing: the base stays in 16 bits");
  else if (!given.is_object() || !given.contains("bnb_4bit_use_double_quant"))
    give("bnb_4bit_use_double_quant", "True");  // as in axolotl
}

/// Regular expressions over names in which a dot is a dot, and perhaps a range of rows.
void RecipeImport::axolotl_unfrozen(const std::string& key, const json& value) {
  if (says("adapter")) return lose(key, "adapters alone are trained beside it");
  std::vector<std::string> parts;
  for (const json& one : value.is_array() ? value : json::array({value})) {
    std::string part;  // with escaped dots
    for (const char c : argument_word(one)) part += c == '.' ? "\\." : std::string(1, c);
    if (part.ends_with(']') && part.rfind(':') > part.rfind('['))
      return need("spec.training.trainableParameters",
                  key + " " + argument_word(one) +
                      ": some rows of a weight alone cannot be trained; name the weight");
    parts.push_back(part);
  }
  give("trainable_parameters", either(parts));
}

/// axolotl's keys that are more than a renamed argument.
const RecipeImport::Takers& RecipeImport::axolotl_keys() {
  // "auto", "full", "unsloth", "offload": other ways to compute the same result
  constexpr Taker kSwitch = [](RecipeImport& in, const std::string& key, const json& value) {
    if (value.is_string()) in.lose(key, argument_word(value) + " is read as true");
    in.give(key == "bfloat16" ? "bf16" : key, value.is_string() ? "True" : argument_word(value));
  };
  constexpr Taker kDatasets = [](RecipeImport& in, const std::string& key, const json& value) {
    in.axolotl_datasets(key, value);
  };
  constexpr Taker kPerEpoch = [](RecipeImport& in, const std::string& key, const json&) {
    const double count = in.number(key.c_str(), 0), epochs = in.number("num_epochs", 1);
    if (count <= 0) return;
    in.give(key.substr(0, 4) + "_strategy", "steps");
    in.give(key.substr(0, 4) + "_steps", text::number(1 / (count * std::max(epochs, 1e-9))));
  };
  constexpr Taker kSteps = [](RecipeImport& in, const std::string& key, const json& value) {
    in.give(key.substr(0, 4) + "_strategy", "steps");
    in.give(key, argument_word(value));
  };
  static constexpr Taker kSpecial = [](RecipeImport& in, const std::string& key,
                                       const json& value) {
    for (const auto& [name, token] : value.items())
      if (name == "eos_token")
        in.give(name, argument_word(token));
      else
        in.lose(key + "." + name, "it is read from the model's tokenizer");
  };
  static const Takers takers = {
      {"bf16", kSwitch},
      {"bfloat16", kSwitch},
      {"gradient_checkpointing", kSwitch},
      {"datasets", kDatasets},
      {"test_datasets", kDatasets},
      {"evals_per_epoch", kPerEpoch},
      {"saves_per_epoch", kPerEpoch},
      {"eval_steps", kSteps},
      {"save_steps", kSteps},
      {"val_set_size",
       [](RecipeImport& in, const std::string&, const json& value) { in.validation(value); }},
      {"adapter", [](RecipeImport& in, const std::string& key,
                     const json& value) { in.axolotl_adapter(key, value); }},
      {"rl",
       [](RecipeImport& in, const std::string&, const json& value) {
         in.give("objective", value == "ipo" ? "dpo" : argument_word(value));
         if (value == "ipo") in.give("loss_type", "ipo");
       }},
      {"bnb_config_kwargs",  // arguments of BitsAndBytesConfig
       [](RecipeImport& in, const std::string& key, const json& value) {
         if (!value.is_object()) return in.lose(key, "expected an object");
         for (const auto& [name, setting] : value.items()) in.give(name, argument_word(setting));
       }},
      {"unfrozen_parameters", [](RecipeImport& in, const std::string& key,
                                 const json& value) { in.axolotl_unfrozen(key, value); }},
      {"lora_target_linear",
       [](RecipeImport& in, const std::string&, const json& value) {
         if (value == true) in.give("lora_target_modules", "all-linear");
       }},
      {"batch_size",  // rows per step and rank
       [](RecipeImport& in, const std::string&, const json&) {
         const double rows = in.number("batch_size", 0);
         const double micro = std::max(in.number("micro_batch_size", 1), 1.0);
         if (!in.says("gradient_accumulation_steps") && rows >= 1)
           in.give("gradient_accumulation_steps",
                   text::number(std::max(std::floor(rows / micro), 1.0)));
       }},
      {"curriculum_sampling",
       [](RecipeImport& in, const std::string&, const json& value) {
         if (value == true) in.give("shuffle", "False");
       }},
      {"plugins",
       [](RecipeImport& in, const std::string& key, const json& value) {
         for (const json& plugin : value.is_array() ? value : json::array({value})) {
           const std::string name = argument_word(plugin);
           if (learns_the_same(name))
             in.lose(key, name + ": no effect on what is learnt");
           else
             in.refuse(key,
                       name + " is not built; leave it out if it does not change what is learnt");
         }
       }},
      {"reward_model",
       [](RecipeImport& in, const std::string&, const json& value) {
         if (value != true) return;
         in.give("objective", "reward");
         in.note("reward_model: pairs longer than sequence_len are left out; axolotl cuts them");
       }},
      {"cosine_min_lr_ratio",
       [](RecipeImport& in, const std::string&, const json& value) {
         in.give("lr_scheduler_type", "cosine_with_min_lr");
         in.give("lr_scheduler_kwargs", json{{"min_lr_rate", value}}.dump());
       }},
      {"special_tokens", kSpecial},
      {"tokens",  // a list of new ones; in old files special_tokens
       [](RecipeImport& in, const std::string& key, const json& value) {
         if (value.is_object()) return kSpecial(in, key, value);
         in.give("tokens", argument_word(value));
       }},
      {"chat_template",
       [](RecipeImport& in, const std::string& key, const json& value) {
         if (value != "tokenizer_default")
           in.note(key + " " + argument_word(value) +
                   ": the model's own is used; `dsj data show` prints the rows as they are read");
       }},
      {"wandb_project", [](RecipeImport& in, const std::string& key, const json&) {
         in.give("report_to", "wandb");
         in.lose(key, "W&B's project: docs/watching.md shows how to upload a run");
       }}};
  return takers;
}

void RecipeImport::axolotl_datasets(const std::string& key, const json& value) {
  const bool test = key == "test_datasets";
  if (!value.is_array() || !value[0].is_object()) {
    lose(key, "expected a list of data sets");
    return;
  }
  std::string paths;
  for (size_t at = 0; at < value.size(); ++at) {
    const std::string place = key + "[" + std::to_string(at) + "]";
    json set = value[at].is_object() ? value[at] : json::object();
    std::string file = json_text(set, "path");
    if (set.contains("data_files")) file = argument_word(set["data_files"]);
    const auto there = files_.exists(file);
    if (!test && !(there && *there)) {
      if (at == 0)
        need("spec.training.dataPath", "the data set \"" + file + "\" is not a file here");
      else
        lose(place, "\"" + file + "\" is not a file here");
      continue;
    }
    paths += (paths.empty() ? "" : ",") + file;
    for (const char* known : {"path", "data_files", "ds_type"}) set.erase(known);
    if (!set.empty())
      note(place + ": " + set.dump() + "; `dsj data show` prints how the rows are read");
  }
  if (!paths.empty()) give(test ? "eval_data_path" : "data_path", paths);
}

/// axolotl's keys for evaluations, which it ignores without evaluation rows.
constexpr const char* kAxolotlEvaluation[] = {
    "eval_steps",           "evals_per_epoch",         "eval_strategy",
    "eval_batch_size",      "early_stopping_patience", "load_best_model_at_end",
    "metric_for_best_model"};

Result<Imported> RecipeImport::axolotl() {
  const bool evaluates = says("test_datasets") || number("val_set_size", 0) > 0;
  bool schedule = false;
  for (const auto& [key, value] : document_.items()) {
    if (is_empty(value)) continue;
    if (!evaluates && std::ranges::find(kAxolotlEvaluation, key) != std::end(kAxolotlEvaluation)) {
      lose(key, "there are no rows to evaluate on: val_set_size is 0");
      continue;
    }
    if (key == "lr_scheduler" && document_.contains("cosine_min_lr_ratio")) continue;
    if (key == "lora_target_modules" && document_.value("lora_target_linear", json()) == true)
      continue;  // axolotl adds them to all linear layers
    const auto renamed =
        std::ranges::find_if(kAxolotlNames, [&](const auto& names) { return key == names.first; });
    if (const auto taker = axolotl_keys().find(key); taker != axolotl_keys().end()) {
      taker->second(*this, key, value);
    } else if (renamed != std::end(kAxolotlNames)) {
      give(renamed->second, argument_word(value));
    } else if (key.starts_with("liger_") ||
               std::ranges::find(kAxolotlQuiet, key) != std::end(kAxolotlQuiet)) {
      lose(key, "no effect here");
    } else if (jobspec::is_line_argument("--" + key)) {
      give(key, argument_word(value));
    } else {
      lose(key, "not known here");
    }
    schedule = schedule || key == "warmup_steps" || key == "warmup_ratio";
  }
  for (const auto& [key, value] : kAxolotlDefaults) {
    const bool other = std::string_view(key) == "lr_scheduler" && says("cosine_min_lr_ratio");
    if (says(key) || other) continue;
    const auto renamed = std::ranges::find_if(
        kAxolotlNames, [&](const auto& names) { return std::string_view(key) == names.first; });
    give(renamed == std::end(kAxolotlNames) ? key : renamed->second, value);
  }
  if (evaluates && says("early_stopping_patience") && !says("metric_for_best_model"))
    give("metric_for_best_model", "loss");  // Trainer's default with load_best_model_at_end
  if (evaluates && !says("eval_batch_size"))
    give("per_device_eval_batch_size", text::number(std::max(number("micro_batch_size", 1), 1.0)));
  const auto on = [&](const char* key) { return document_.value(key, json()) == true; };
  if (!says("bf16") && !says("bfloat16") && !on("fp16") && !on("float16")) {
    give("bf16", "True");
    note("spec.training.bf16: axolotl's default is auto: bf16 where the device has it");
  }
  if (evaluates && !says("eval_steps") && !says("evals_per_epoch") && !says("eval_strategy"))
    give("eval_strategy", "epoch");
  if (!says("save_steps") && !says("saves_per_epoch") && !says("save_strategy"))
    give("save_strategy", "epoch");
  if (!schedule) {
    give("warmup_ratio", "0.03");
    note("spec.training.warmupRatio: axolotl warms up over 3 % of the steps, at most 100");
  }
  return finish_line("axolotl starts one rank per GPU");
}

}  // namespace

std::optional<std::string> recipe_kind(const json& document) {
  if (!document.is_object() || document.contains("kind")) return std::nullopt;
  const auto has = [&](const char* key) { return document.contains(key); };
  if (has("base_model") && (has("datasets") || has("micro_batch_size"))) return "axolotl";
  if (has("model_name_or_path") && (has("finetuning_type") || has("stage") || has("dataset") ||
                                    has("export_dir") || has("infer_backend")))
    return "llamafactory";
  return std::nullopt;
}

Result<Imported> import_recipe(Files& files, Recipe recipe, const json& document,
                               const std::string& source) {
  if (!document.is_object()) return bad_input("expected keys and values", source);
  for (const auto& [key, built] : kDecides) {
    const json value = document.value(key, json());
    if (is_empty(value)) continue;
    if (std::ranges::find(built, argument_word(value)) == built.end())
      return bad_input(std::string(key) + " " + argument_word(value) + " is not built", source,
                       built.empty() ? "" : "expected " + argument_word(built));
  }
  RecipeImport import(files, document, source);
  return recipe == Recipe::LlamaFactory ? import.llamafactory() : import.axolotl();
}

}  // namespace dsj::jobimport
