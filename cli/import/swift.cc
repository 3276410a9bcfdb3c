#include "cli/import/swift.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "cli/import/trained_names.h"
#include "common/text.h"
#include "job/spec/job.h"
#include "job/spec/yaml.h"

namespace dsj::jobimport {
namespace {

using nlohmann::json;

/// ms-swift's names, also of older versions, and the arguments that replace them.
const std::map<std::string, std::string>& renamed() {
  static const std::map<std::string, std::string> names = {
      {"model", "model_name_or_path"},
      {"max_length", "max_seq_length"},
      {"lora_rank", "lora_r"},
      {"target_modules", "lora_target_modules"},
      {"target_parameters", "lora_target_parameters"},
      {"modules_to_save", "lora_modules_to_save"},
      {"lorap_lr_ratio", "loraplus_lr_ratio"},
      {"adapters", "adapter_name_or_path"},
      {"init_weights", "init_lora_weights"},
      {"train_dataloader_shuffle", "shuffle"}};
  return names;
}

/// The current name of an argument of older versions.
std::string current(const std::string& name) {
  static const std::map<std::string, std::string> names = {
      {"train_type", "tuner_type"},
      {"sft_type", "tuner_type"},
      {"model_id_or_path", "model"},
      {"lora_target_modules", "target_modules"},
      {"lora_modules_to_save", "modules_to_save"},
      {"dtype", "torch_dtype"},
      {"evaluation_strategy", "eval_strategy"},
      {"batch_size", "per_device_train_batch_size"},
      {"eval_batch_size", "per_device_eval_batch_size"}};
  const auto found = names.find(name);
  return found == names.end() ? name : found->second;
}

/// Arguments that do not change what is learnt.
const std::set<std::string_view> kQuiet = {"attn_impl",
                                           "padding_free",
                                           "dataset_num_proc",
                                           "load_from_cache_file",
                                           "model_author",
                                           "model_name",
                                           "model_type",
                                           "use_hf",
                                           "hub_token",
                                           "ddp_timeout",
                                           "freeze_vit",
                                           "freeze_aligner",
                                           "vit_gradient_checkpointing",
                                           "lazy_tokenize",
                                           "packing_num_proc",
                                           "packing_cache",
                                           "strict",
                                           "ignore_args_error",
                                           "check_model",
                                           "add_version",
                                           "create_checkpoint_symlink",
                                           "load_args",
                                           "load_data_args",
                                           "tuner_backend",
                                           "quant_method",
                                           "experts_impl",
                                           "device_map",
                                           "max_memory",
                                           "model_revision",
                                           "local_repo_path",
                                           "dataloader_persistent_workers",
                                           "dataloader_prefetch_factor",
                                           "is_binary_loss_scale",
                                           "val_dataset_shuffle",
                                           "remove_unused_columns",
                                           "save_on_each_node",
                                           "swanlab_project",
                                           "swanlab_exp_name",
                                           "swanlab_token",
                                           "swanlab_workspace",
                                           "swanlab_mode",
                                           "acc_strategy",
                                           "acc_steps",
                                           "logprobs",
                                           "max_new_tokens",
                                           "temperature",
                                           "top_k",
                                           "top_p",
                                           "repetition_penalty",
                                           "use_ray",
                                           "vllm_gpu_memory_utilization",
                                           "dataset_shuffle"};

/// The ds_config of ms-swift's files for ZeRO 0 to 3, with or without offload.
json ds_config_of(int64_t stage, bool offloads) {
  const json place = {{"device", offloads ? "cpu" : "none"}, {"pin_memory", true}};
  json zero = {{"stage", stage}, {"overlap_comm", false}, {"contiguous_gradients", true}};
  if (stage > 0) zero["offload_optimizer"] = place;
  if (stage == 3) {
    zero["offload_param"] = place;
    zero.update({{"sub_group_size", 1e9},
                 {"reduce_bucket_size", "auto"},
                 {"stage3_prefetch_bucket_size", "auto"},
                 {"stage3_param_persistence_threshold", "auto"},
                 {"stage3_max_live_parameters", 1e9},
                 {"stage3_max_reuse_distance", 1e9},
                 {"stage3_gather_16bit_weights_on_model_save", true}});
  } else {
    zero.update({{"allgather_partitions", true},
                 {"allgather_bucket_size", 2e8},
                 {"reduce_scatter", true},
                 {"reduce_bucket_size", 2e8}});
  }
  return {{"fp16",
           {{"enabled", "auto"},
            {"loss_scale", 0},
            {"loss_scale_window", 1000},
            {"initial_scale_power", 16},
            {"hysteresis", 2},
            {"min_loss_scale", 1}}},
          {"bf16", {{"enabled", "auto"}}},
          {"zero_optimization", zero},
          {"gradient_accumulation_steps", "auto"},
          {"gradient_clipping", "auto"},
          {"train_batch_size", "auto"},
          {"train_micro_batch_size_per_gpu", "auto"}};
}

/// The settings that ms-swift has under this name, or null.
json own_ds_config(std::string name) {
  const bool offloads = name.ends_with("_offload");
  if (offloads) name.resize(name.size() - 8);
  if (name.size() != 5 || !name.starts_with("zero")) return nullptr;
  const int64_t stage = name[4] - '0';
  if (stage < 0 || stage > 3 || (offloads && stage < 2)) return nullptr;
  return ds_config_of(stage, offloads);
}

/// The values of an argument: a list, or the words of a text.
std::vector<std::string> values_of(const json& value) {
  std::vector<std::string> values;
  for (const json& one : value.is_array() ? value : json::array({value}))
    values.push_back(argument_word(one));
  return values;
}

class SwiftImport {
 public:
  SwiftImport(Files& files, std::string command, int64_t ranks)
      : files_(files), command_(std::move(command)), ranks_(ranks) {}

  Status read(const std::vector<std::string>& words);
  Result<SwiftArguments> run();

 private:
  bool says(const std::string& key) const {
    const auto found = said_.find(key);
    return found != said_.end() && !found->second.is_null() && found->second != "" &&
           found->second != json::array();
  }
  /// Removes an argument. Remaining ones are passed on under their own names, or reported.
  std::optional<std::string> take(const std::string& key) {
    const bool there = says(key);
    auto node = said_.extract(key);
    if (!there) return std::nullopt;
    return argument_word(node.mapped());
  }
  double number(const std::string& key, double otherwise) const {
    const auto found = said_.find(key);
    const auto value =
        found == said_.end() ? std::nullopt : text::parse_double(argument_word(found->second));
    return value.value_or(otherwise);
  }
  void give(const std::string& name, const std::string& value) {
    out_.line.push_back("--" + name + "=" + value);
  }
  /// Sets ms-swift's default.
  void fill(const std::string& key, const std::string& value) {
    if (!says(key)) said_[key] = value;
  }
  void lose(const std::string& key, const std::string& why) {
    out_.not_carried.push_back("--" + key + ": " + why);
  }
  void note(const std::string& words) { out_.left_open.push_back(words); }

  Status objective();
  Status tuner();
  Status frozen();
  void data();
  void evaluation();
  void batch();
  void precision();
  Status loss_scale();
  void deepspeed();
  void rest();
  std::string paths_of(const std::string& key, bool counts);

  Files& files_;
  std::string command_;
  bool scores_ = false;  ///< a reward model is trained
  int64_t ranks_;
  std::map<std::string, json> said_;
  SwiftArguments out_;
};

Status SwiftImport::read(const std::vector<std::string>& words) {
  size_t i = 0;
  if (!words.empty() && !words[0].starts_with("--")) {
    DSJ_TRY(const std::string text, files_.read_all(words[0], 1 << 20));
    DSJ_TRY(const auto document, jobspec::parse_yaml(text, words[0], jobspec::Dialect::Omega));
    if (!document.value.is_object()) return bad_input("expected arguments and values", words[0]);
    for (const auto& [key, value] : document.value.items()) said_[current(key)] = value;
    i = 1;
  }
  for (; i < words.size(); ++i) {
    if (!words[i].starts_with("--"))
      return bad_input("expected an argument, found \"" + words[i] + "\"", "swift " + command_);
    const size_t equals = words[i].find('=');
    std::string name = words[i].substr(2, equals == std::string::npos ? equals : equals - 2);
    std::replace(name.begin(), name.end(), '-', '_');
    json values = json::array();
    if (equals != std::string::npos) values.push_back(words[i].substr(equals + 1));
    while (i + 1 < words.size() && !words[i + 1].starts_with("--")) values.push_back(words[++i]);
    said_[current(name)] = values.empty() ? json("True") : values.size() == 1 ? values[0] : values;
  }
  return {};
}

Status SwiftImport::objective() {
  if (const auto task = take("task_type"); task && *task != "causal_lm")
    return bad_input("a model of task " + *task + " is not built", "--task_type", "causal_lm is");
  if (command_ == "pt") give("objective", "pretrain");
  if (command_ != "rlhf") return {};
  const std::string kind = take("rlhf_type").value_or("dpo");
  if (kind != "dpo" && kind != "orpo" && kind != "kto" && kind != "rm")
    return bad_input("ms-swift's " + kind + " is not built", "--rlhf_type",
                     "dpo, orpo, kto and rm are");
  scores_ = kind == "rm";
  give("objective", scores_ ? "reward" : kind);
  if (const auto model = take("ref_model"); model && argument_word(said_["model"]) != *model)
    return bad_input("a reference other than the model that is trained is not built", "--ref_model",
                     "leave it out");
  return {};
}

/// First freezes by a share of all parameters, name prefixes and a searched expression; then
/// trains again what other prefixes and another expression match.
Status SwiftImport::frozen() {
  const auto expressions = [&](const std::string& starts, const std::string& searched) {
    std::vector<std::string> parts;
    const auto names = says(starts) ? values_of(said_[starts]) : std::vector<std::string>();
    for (const std::string& name : names) parts.push_back(literal(name));
    if (says(searched)) parts.push_back(".*(?:" + argument_word(said_[searched]) + ")");
    said_.erase(starts);
    said_.erase(searched);
    return either(parts);
  };
  const double share = number("freeze_parameters_ratio", 0);
  if (share > 0 && share < 1)
    return bad_input("a share of the parameters is not built: it ends within a layer",
                     "--freeze_parameters_ratio", "write --trainable_layers, or 1");
  said_.erase("freeze_parameters_ratio");
  const std::string frozen = expressions("freeze_parameters", "freeze_parameters_regex");
  const std::string trained = expressions("trainable_parameters", "trainable_parameters_regex");
  if (share <= 0 && frozen.empty()) return {};
  if (share > 0 && trained.empty())
    return bad_input("every parameter is frozen", "--freeze_parameters_ratio",
                     "name some by --trainable_parameters");
  const std::string rest = share > 0 ? "" : "(?!" + frozen + ")";
  give("trainable_parameters", rest + (trained.empty() || rest.empty() ? "" : "|") + trained);
  return {};
}

Status SwiftImport::tuner() {
  const std::string tuner = take("tuner_type").value_or("lora");
  if (tuner != "lora" && tuner != "full")
    return bad_input("the tuner " + tuner + " is not built", "--tuner_type", "lora and full are");
  const bool lora = tuner == "lora";
  fill("learning_rate", lora ? "1e-4" : "1e-5");
  if (lora) {
    give("use_peft", "True");
    if (says("adapters") && command_ == "rlhf" && !scores_)
      note(
          "--adapters: the reference is the model with this adapter, as in TRL; ms-swift's is the "
          "model without it");
    if (!says("adapters")) {  // else their adapter_config.json says it
      fill("lora_rank", "8");
      fill("lora_alpha", "32");
      fill("lora_dropout", "0.05");
      fill("target_modules", "all-linear");
    }
    if (says("optimizer") && argument_word(said_["optimizer"]) == "lorap") take("optimizer");
    if (says("target_regex"))
      return bad_input("modules by a regular expression are not built", "--target_regex",
                       "name them by --target_modules");
  } else {
    if (says("adapters"))
      return bad_input("an adapter below a full fine-tuning is not built", "--adapters",
                       "dsj merge it into its base, and name the merged model");
    for (const char* key :
         {"lora_rank", "lora_alpha", "lora_dropout", "target_modules", "use_rslora", "lora_bias",
          "use_dora", "init_weights", "target_regex", "target_parameters", "modules_to_save",
          "lorap_lr_ratio", "lorap_emb_lr"})
      if (take(key)) lose(key, "acts with tuner_type lora only");
    DSJ_TRY_STATUS(frozen());
  }
  for (const char* key : {"optimizer", "external_plugins"})
    if (says(key))
      return bad_input("\"" + argument_word(said_[key]) + "\" is not built",
                       "--" + std::string(key), "leave it out; --optim names optimizers");
  const auto bits = take("quant_bits");
  if (!bits || *bits == "0" || *bits == "16") return {};
  if (says("quant_method") && argument_word(said_["quant_method"]) != "bnb")
    return bad_input(
        "a base quantised by " + argument_word(said_["quant_method"]) + " is not built",
        "--quant_method", "bnb with --quant_bits 4 is");
  give(*bits == "8" ? "load_in_8bit" : "load_in_4bit", "True");
  fill("bnb_4bit_use_double_quant", "True");
  return {};
}

/// The files of --dataset or --val_dataset, comma-separated; entries on a hub are reported.
std::string SwiftImport::paths_of(const std::string& key, bool counts) {
  std::string paths;
  std::set<std::string> sizes;
  const auto node = said_.extract(key);
  if (node.empty()) return paths;
  for (std::string entry : values_of(node.mapped())) {
    const size_t mark = entry.rfind('#');
    sizes.insert(mark == std::string::npos ? "" : entry.substr(mark + 1));
    entry.resize(std::min(mark, entry.size()));
    const auto there = files_.exists(entry);
    if (there && *there) {
      paths += (paths.empty() ? "" : ",") + entry;
    } else if (counts) {
      out_.missing.push_back(
          {"spec.training.dataPath",
           "\"" + entry + "\" is not a file here, and no data set is downloaded from a hub"});
    } else {
      lose(key, "\"" + entry + "\" is not a file here");
    }
  }
  if (sizes.size() == 1 && !sizes.begin()->empty()) {
    give(counts ? "max_samples" : "max_eval_samples", *sizes.begin());
    note("--" + key + " #" + *sizes.begin() +
         ": the first rows of each file; ms-swift draws them at random");
  } else if (sizes.size() > 1) {
    lose(key, "numbers of rows behind # that differ: every row is read");
  }
  return paths;
}

void SwiftImport::data() {
  if (says("dataset")) {
    if (const std::string paths = paths_of("dataset", true); !paths.empty())
      give("data_path", paths);
  } else {
    out_.missing.push_back({"spec.training.dataPath", "the line has no --dataset"});
  }
  if (!says("max_length"))
    note(
        "spec.training.maxSeqLength: ms-swift's default is the model's longest sequence, here "
        "2048");
  const std::string cut = take("truncation_strategy").value_or("delete");
  if (scores_) {
    if (cut != "delete")
      note("truncation_strategy " + cut +
           ": objective reward leaves pairs with a row of more than maxSeqLength tokens out");
  } else if (cut == "left") {
    give("truncation_side", "left");
  } else if (cut == "split" && says("packing")) {
    give("packing_strategy", "bfd_split");
  } else if (cut != "right") {
    note("truncation_strategy " + cut +
         ": rows of more than maxSeqLength tokens are cut at the right and keep the rest");
  }
  for (const char* key : {"template", "template_backend", "agent_template"})
    if (const auto value = take(key))
      note(std::string(key) + " " + *value +
           ": the model's own chat template is used; `dsj data show` prints the rows as they are "
           "read");
  if (const auto system = take("system"); system && command_ != "pt") {
    const auto text = files_.read_all(*system, 1 << 20);  // a file or the text itself
    give("default_system", text ? *text : *system);
  }
  if (command_ != "pt") give("chat_template", "model");
  if (const auto uses = take("use_chat_template");
      uses && command_ != "pt" && *uses != "True" && *uses != "true")
    lose("use_chat_template", "the rows' shape decides: dsj data show prints them");
  if (const auto columns = take("columns"))
    lose("columns", *columns + ": write --dataset_columns (docs/data.md)");
  if (const auto streams = take("streaming"); streams == "True" || streams == "true")
    note("streaming: rows are read when they are needed, and shuffled whole");
}

void SwiftImport::evaluation() {
  const double ratio = number("split_dataset_ratio", 0);
  take("split_dataset_ratio");
  const std::string paths = paths_of("val_dataset", false);
  if (!paths.empty())
    give("eval_data_path", paths);
  else if (ratio > 0)
    give("val_size", text::number(ratio));
  fill("save_strategy", "steps");
  fill("save_steps", "500");
  if (paths.empty() && ratio <= 0) {
    take("eval_strategy");
    take("eval_steps");
    return;
  }
  fill("eval_strategy", argument_word(said_["save_strategy"]));
  fill("eval_steps", argument_word(said_["save_steps"]));
}

void SwiftImport::batch() {
  fill("per_device_train_batch_size", "1");
  fill("per_device_eval_batch_size", "1");
  if (says("gradient_accumulation_steps")) return;
  const double rows = std::max(1.0, number("per_device_train_batch_size", 1)) *
                      static_cast<double>(std::max<int64_t>(1, ranks_));
  fill("gradient_accumulation_steps", text::number(std::max(1.0, std::ceil(16 / rows))));
  note("spec.training.gradientAccumulationSteps: ms-swift's default for " + std::to_string(ranks_) +
       " ranks, 16 rows a step");
}

void SwiftImport::precision() {
  const std::string type = take("torch_dtype").value_or("");
  if (says("bf16") || says("fp16")) return;
  const bool half = type == "float16" || type == "float32" || type == "fp16" || type == "fp32";
  give(half ? "fp16" : "bf16", "True");
  if (type.empty() || type == "AUTO")
    note("spec.training.bf16: ms-swift reads the type from the model's config.json");
}

Status SwiftImport::loss_scale() {
  const auto value = take("loss_scale");
  if (!value) return {};
  for (size_t at = 0; at <= value->size();) {
    const size_t end = std::min(value->find('+', at), value->size());
    const std::string one = value->substr(at, end - at);
    at = end + 1;
    if (one == "default" || one.empty()) continue;
    if (one == "last_round")
      give("mask_history", "True");
    else if (one == "all")
      give("train_on_inputs", "True");
    else
      return bad_input("the weights of tokens of \"" + one + "\" are not built", "--loss_scale",
                       "leave it out: each token of an answer has weight 1");
  }
  return {};
}

void SwiftImport::deepspeed() {
  const auto name = take("deepspeed");
  const auto parts = text::parse_int(take("sequence_parallel_size").value_or("1"));
  const json own = own_ds_config(name.value_or("zero0"));
  if (name && own.is_null()) {
    give("deepspeed", *name);
    if (parts != 1) lose("sequence_parallel_size", "write it into " + *name);
    return;
  }
  out_.ds_config = own;
  if (const auto group = take("zero_hpz_partition_size")) {
    const auto size = text::parse_int(*group);
    out_.ds_config["zero_optimization"]["zero_hpz_partition_size"] =
        size ? json(*size) : json(*group);
  }
  if (parts && *parts > 1) out_.ds_config["sequence_parallel_size"] = *parts;
  if (!name)
    note(
        "spec.deepspeed.config: the line does not use DeepSpeed; ZeRO stage 0 is data parallelism");
}

void SwiftImport::rest() {
  fill("weight_decay", "0.1");
  fill("adam_beta2", "0.95");
  fill("lr_scheduler_type", "cosine");
  fill("logging_steps", "5");
  fill("logging_first_step", "True");
  fill("num_train_epochs", "3");
  fill("gradient_checkpointing", "True");
  fill("report_to", "tensorboard");
  if (!says("output_dir")) {
    const std::string model = says("model") ? argument_word(said_["model"]) : "model";
    said_["output_dir"] = "output/" + model.substr(model.find_last_of('/') + 1);
  }
  for (const auto& [key, value] : said_) {
    if (!says(key)) continue;
    const auto other = renamed().find(key);
    const std::string name = other == renamed().end() ? key : other->second;
    if (key == "ENV") {
      lose(key, "environment variables of ms-swift's");
    } else if (kQuiet.contains(key)) {
      lose(key, "no effect here");
    } else if (jobspec::is_line_argument("--" + name)) {
      give(name, argument_word(value));
    } else {
      lose(key, "not known here");
    }
  }
}

Result<SwiftArguments> SwiftImport::run() {
  DSJ_TRY_STATUS(objective());
  DSJ_TRY_STATUS(tuner());
  data();
  evaluation();
  batch();
  precision();
  DSJ_TRY_STATUS(loss_scale());
  deepspeed();
  rest();
  return std::move(out_);
}

}  // namespace

std::optional<std::string> swift_command(const std::string& script) {
  for (const char* command : {"sft", "pt", "rlhf"})
    if (script.ends_with("swift/cli/" + std::string(command) + ".py")) return command;
  return std::nullopt;
}

Result<SwiftArguments> swift_arguments(Files& files, const std::string& command,
                                       const std::vector<std::string>& words, int64_t ranks) {
  SwiftImport import(files, command, ranks);
  DSJ_TRY_STATUS(import.read(words));
  return import.run();
}

}  // namespace dsj::jobimport
