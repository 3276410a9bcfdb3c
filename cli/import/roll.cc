#include "cli/import/roll.h"

#include <algorithm>

#include "cli/import/device_mapping.h"
#include "cli/import/interpolation.h"
#include "common/json.h"
#include "common/text.h"
#include "job/argument_table.h"
#include "job/spec/job.h"
#include "job/training_args.h"

namespace dsj::jobimport {
namespace {

using nlohmann::json;

constexpr char kStrategyHere[] = "deepspeed_train";
constexpr int kDevicesPerNode = 8;            // ROLL's default of num_gpus_per_node
constexpr int64_t kMaxCount = 1'000'000'000;  // of tokens or ranks: sums of two do not overflow
constexpr char kDataPlaceholder[] = "./name-your-data.jsonl";

/// Whether an object has sections of a role.
bool looks_like_role(const json& value) {
  return value.is_object() && (value.contains("strategy_args") || value.contains("model_args") ||
                               value.contains("training_args"));
}

/// One Interpolator for all roles, so that its limit on growth bounds the listing.
RollRole describe(Interpolator& references, const std::string& path) {
  RollRole role{.path = path};
  // A listing shows what can be read; import_role reports errors.
  const auto value = [&](const std::string& below) {
    auto found = references.at(path + "." + below);
    return found ? *found : json();
  };
  if (const json strategy = value("strategy_args"); strategy.is_object())
    role.strategy = strategy.value("strategy_name", json(kStrategyHere)).is_string()
                        ? strategy.value("strategy_name", std::string(kStrategyHere))
                        : std::string();
  if (const auto devices = parse_device_mapping(value("device_mapping"), ""))
    role.ranks = static_cast<int>(devices->size());
  else if (const json world = value("world_size"); world.is_number_integer())
    role.ranks = static_cast<int>(world.get<int64_t>());
  return role;
}

/// Sets a Hugging Face argument in spec.training under its camelCase name, as a number if
/// possible ("1e-6" is one). Null is ignored. Errors: BadInput for an unknown argument, a value
/// of another type, or a value that is still a ${...}.
Status take_training_field(json& training, const std::string& name, const json& value) {
  if (value.is_null()) return {};
  const std::string camel = camel_case(name);
  const auto read = training_args_from_json({{camel, value}}, "");
  if (!read) {
    const bool known = training_args_from_json({{camel, nullptr}}, "").has_value();
    return bad_input(known ? read.error().message : "has no place in a job", name);
  }
  training.update(to_json(*read));
  return {};
}

class RoleImport {
 public:
  RoleImport(const RollPipeline& pipeline, const std::string& role)
      : pipeline_(pipeline), role_(role), references_(pipeline.value, pipeline.source) {}

  Result<Imported> run() {
    DSJ_TRY(const json strategy, section("strategy_args"));
    const json name = strategy.value("strategy_name", json(kStrategyHere));
    if (strategy.empty() || name != kStrategyHere)
      return bad_input(
          "the role's strategy is " + (strategy.empty() ? std::string("not named") : name.dump()) +
              ", not \"" + kStrategyHere + "\": it is left alone",
          pipeline_.source + ": " + role_, "only roles that DeepSpeed trains become jobs");
    imported_.origin = pipeline_.source + " (ROLL), role " + role_;
    spec_ = json::object();
    training_ = json::object();
    DSJ_TRY_STATUS(ds_config(strategy));
    DSJ_TRY_STATUS(arguments());
    DSJ_TRY_STATUS(model());
    DSJ_TRY_STATUS(data());
    DSJ_TRY_STATUS(of_the_pipeline());
    DSJ_TRY_STATUS(workers());
    DSJ_TRY_STATUS(rest());
    DSJ_TRY(const json experiment, top("exp_name"));
    spec_["training"] = training_;
    imported_.manifest = {
        {"apiVersion", jobspec::kApiVersion},
        {"kind", jobspec::kKind},
        {"metadata",
         {{"name",
           job_name((experiment.is_string() ? experiment.get<std::string>() + "-" : "") + role_)}}},
        {"spec", spec_}};
    predefined();
    for (const std::string& open : references_.left_open())
      imported_.left_open.push_back(open + ": the environment is not read, no resolver is called");
    return std::move(imported_);
  }

 private:
  Result<json> top(const std::string& name) { return references_.at(name); }
  /// A section of the role; an empty object if it is missing.
  Result<json> section(const std::string& name) {
    DSJ_TRY(json value, references_.at(role_ + "." + name));
    if (value.is_null()) return json::object();
    if (!value.is_object())
      return bad_input("expected an object", pipeline_.source + ": " + role_ + "." + name);
    return value;
  }
  void lost(const std::string& what, const std::string& why) {
    imported_.not_carried.push_back(what + ": " + why);
  }
  std::string in_role(const std::string& name) const { return role_ + "." + name; }

  Status ds_config(const json& strategy) {
    json config = strategy.value("strategy_config", json::object());
    if (config.is_null()) config = json::object();
    if (!config.is_object())
      return bad_input("expected a ds_config, found " + json_brief(config),
                       pipeline_.source + ": " + in_role("strategy_args.strategy_config"));
    for (const char* replaced : {"optimizer", "scheduler", "train_batch_size"}) {
      if (config.erase(replaced) == 0) continue;
      lost(std::string("strategy_config.") + replaced,
           "ROLL makes its own from training_args, and so does the job");
    }
    config["train_micro_batch_size_per_gpu"] = "auto";
    config["gradient_clipping"] = "auto";
    spec_["deepspeed"]["config"] = std::move(config);
    return {};
  }

  /// bf16 or fp16 of the ds_config takes precedence; if it is "auto" or missing, dtype counts.
  void precision(const json& model_args) {
    const json dtype = model_args.value("dtype", json("bf16"));
    const json& config = spec_["deepspeed"]["config"];
    for (const char* type : {"bf16", "fp16"}) {
      json enabled = config.contains(type) && config[type].is_object()
                         ? config[type].value("enabled", json("auto"))
                         : json("auto");
      const bool asked = dtype == type;
      if (enabled.is_boolean() && enabled != asked)
        lost("model_args.dtype " + dtype.dump(),
             std::string("the ds_config says ") + type + ".enabled " + enabled.dump());
      if (enabled.is_string() && asked) training_[type] = true;
      if (enabled == true && asked) training_[type] = true;
    }
  }

  Status arguments() {
    DSJ_TRY(const json given, section("training_args"));
    for (const auto& [name, value] : given.items()) {
      const auto taken = take_training_field(training_, name, value);
      if (!taken) lost("training_args." + name + " " + json_brief(value), taken.error().message);
    }
    return {};
  }

  Status model() {
    DSJ_TRY(const json given, section("model_args"));
    precision(given);
    training_["gradientCheckpointing"] =
        !text::parse_bool(word(given.value("disable_gradient_checkpointing", json(false))))
             .value_or(false);
    lora(given);
    DSJ_TRY(const json of_pipeline, model_of_the_pipeline());
    const json own = given.value("model_name_or_path", json());
    const json& name = own.is_null() ? of_pipeline : own;
    if (name.is_string())
      training_["modelNameOrPath"] = name;
    else
      imported_.missing.push_back({"spec.training.modelNameOrPath", "the pipeline names no model"});
    static const std::vector<std::string> done = {"dtype",
                                                  "disable_gradient_checkpointing",
                                                  "model_name_or_path",
                                                  "attn_implementation",
                                                  "flash_attn",
                                                  "gradient_checkpointing_use_reentrant"};
    for (const auto& [key, value] : given.items()) {
      if (value.is_null() || std::find(done.begin(), done.end(), key) != done.end()) continue;
      if (is_lora(key)) continue;
      std::string why = "has no place in a job";
      if (key == "ulysses_size" && value != 1)
        why = "sequence parallel: every rank takes rows of its own, so a step has " + value.dump() +
              " times as many";
      if (key == "ulysses_size" && value == 1) continue;
      if (key == "model_type")
        why = "a head that is not a language model's: the job trains the causal language model";
      lost("model_args." + key + " " + json_brief(value), why);
    }
    return {};
  }

  static bool is_lora(const std::string& key) {
    return key.starts_with("lora_") || key == "additional_target";
  }

  /// ROLL's defaults: rank 8, alpha twice the rank. Without lora_target there is no LoRA.
  void lora(const json& given) {
    const json target = given.value("lora_target", json());
    if (target.is_null()) {
      for (const auto& [key, value] : given.items())
        if (is_lora(key) && !value.is_null())
          lost("model_args." + key + " " + value.dump(), "there is no lora_target, so no LoRA");
      return;
    }
    json fields = {{"r", given.value("lora_rank", json(8))}};
    fields["alpha"] = given.value("lora_alpha", json());
    if (fields["alpha"].is_null() && fields["r"].is_number_integer() && fields["r"] > 0 &&
        fields["r"] < kMaxCount)
      fields["alpha"] = 2 * fields["r"].get<int64_t>();
    fields["dropout"] = given.value("lora_dropout", json(0.0));
    fields["targetModules"] = names(target, true);
    if (const json more = given.value("additional_target", json()); !more.is_null())
      fields["modulesToSave"] = names(more, false);
    const auto taken = take_training_field(training_, "lora", fields);
    if (!taken) lost("LoRA " + fields.dump(), taken.error().message + ": every weight is trained");
  }

  /// "q_proj, v_proj" as a list. In ROLL a text with * $ | or ( is a pattern, "all" means all.
  static json names(const json& given, bool patterns) {
    if (!given.is_string()) return given;
    const std::string text = given.get<std::string>();
    if (patterns && text == "all") return "all-linear";
    if (patterns && text.find_first_of("*$|(") != std::string::npos) return text;
    json list = json::array();
    for (size_t at = 0; at <= text.size();) {
      const size_t comma = std::min(text.find(',', at), text.size());
      std::string name = text.substr(at, comma - at);
      name.erase(0, std::min(name.find_first_not_of(' '), name.size()));
      while (!name.empty() && name.back() == ' ') name.pop_back();
      if (!name.empty()) list.push_back(name);
      at = comma + 1;
    }
    return list;
  }

  Result<json> model_of_the_pipeline() {
    if (role_ == "student" || role_ == "teacher") {
      DSJ_TRY(json own, top(role_ + "_pretrain"));
      if (!own.is_null()) return own;
    }
    if (role_ == "critic" || role_ == "reward" || role_.starts_with("rewards.")) {
      DSJ_TRY(json own, top("reward_pretrain"));
      if (!own.is_null()) return own;
    }
    return top("pretrain");
  }

  static std::string word(const json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
  }

  Status data() {
    DSJ_TRY(const json given, section("data_args"));
    json file = given.value("file_name", json());
    if (file.is_array() && !file.empty()) {
      if (file.size() > 1)
        lost("data_args.file_name: " + std::to_string(file.size() - 1) + " more files",
             "a job reads one; join them");
      file = json(file[0]);
    }
    if (file.is_string()) {
      training_["dataPath"] = file;
    } else {
      training_["dataPath"] = kDataPlaceholder;
      imported_.left_open.push_back("spec.training.dataPath: the role names no file");
    }
    for (const auto& [key, value] : given.items())
      if (key != "file_name" && key != "preprocessing_num_workers" && !value.is_null())
        lost("data_args." + key + " " + json_brief(value),
             key == "template" ? "the job has its own prompt form" : "has no place in a job");
    return {};
  }

  Status of_the_pipeline() {
    for (const char* name : {"seed", "max_grad_norm", "save_steps", "logging_steps"}) {
      DSJ_TRY(const json value, top(name));
      if (value.is_null()) continue;
      const auto taken = take_training_field(training_, name, value);
      if (!taken) lost(std::string(name) + " " + value.dump(), taken.error().message);
    }
    if (training_.contains("saveSteps")) training_["saveStrategy"] = "steps";
    DSJ_TRY(const json steps, top("max_steps"));
    if (!steps.is_null())
      lost("max_steps " + steps.dump(), "counts rollouts, not steps of the optimizer");
    DSJ_TRY(json length, top("sequence_length"));
    DSJ_TRY(const json prompt, top("prompt_length"));
    DSJ_TRY(const json response, top("response_length"));
    const auto counts = [](const json& value) {
      return value.is_number_integer() && value > 0 && value < kMaxCount;
    };
    if (length.is_null() && counts(prompt) && counts(response))
      length = prompt.get<int64_t>() + response.get<int64_t>();
    if (!length.is_null() && !take_training_field(training_, "max_seq_length", length))
      lost("sequence_length " + length.dump(), "not a whole number");
    DSJ_TRY(json output, top("checkpoint_config.output_dir"));
    if (!output.is_string()) {
      DSJ_TRY(output, top("output_dir"));
    }
    std::string directory = output.is_string() ? output.get<std::string>() : "./output";
    while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
    training_["outputDir"] = directory + "/" + role_;
    return {};
  }

  Status workers() {
    DSJ_TRY(const json mapping, references_.at(in_role("device_mapping")));
    DSJ_TRY(const json per_node, top("num_gpus_per_node"));
    int devices_per_node = kDevicesPerNode;
    if (per_node.is_number_integer() && per_node > 0 && per_node <= 1024)
      devices_per_node = static_cast<int>(per_node.get<int64_t>());
    else if (!per_node.is_null())
      lost("num_gpus_per_node " + per_node.dump(), "expected a whole number; 8 is taken");
    const std::string where = pipeline_.source + ": " + in_role("device_mapping");
    if (mapping.is_null()) {
      DSJ_TRY(const json world, references_.at(in_role("world_size")));
      if (world.is_number_integer() && world > 0 && world <= 65'536) {
        spec_["workers"] = {{"replicas", 1}, {"slotsPerWorker", world}};
        return {};
      }
      imported_.missing.push_back(
          {"spec.workers.slotsPerWorker", "the role has no device_mapping"});
      return {};
    }
    DSJ_TRY(const std::vector<int> devices, parse_device_mapping(mapping, where));
    const auto nodes = nodes_of(devices, devices_per_node, where);
    if (nodes) {
      spec_["workers"] = {{"replicas", nodes->replicas}, {"slotsPerWorker", nodes->slots}};
    } else {
      imported_.missing.push_back({"spec.workers.slotsPerWorker", nodes.error().to_string()});
    }
    return {};
  }

  Status rest() {
    static const std::vector<std::string> sections = {
        "model_args",     "training_args", "data_args",       "strategy_args",
        "device_mapping", "world_size",    "infer_batch_size"};
    const json::json_pointer at = pointer_of(role_);
    for (const auto& [name, value] : pipeline_.value[at].items())
      if (std::find(sections.begin(), sections.end(), name) == sections.end() && !value.is_null())
        lost(name + " " + json_brief(value), "has no place in a job");
    std::string others;
    for (const RollRole& other : pipeline_.roles)
      if (other.path != role_)
        others += (others.empty() ? "" : ", ") + other.path +
                  (other.strategy.empty() ? "" : " (" + other.strategy + ")");
    if (!others.empty()) lost("the other roles, and what the pipeline does with them", others);
    return {};
  }

 public:
  static json::json_pointer pointer_of(const std::string& dotted) {
    std::string text = "/" + dotted;
    std::replace(text.begin(), text.end(), '.', '/');
    return json::json_pointer(text);
  }

 private:
  /// Lists the predefined files that the job's values come from, not all of the pipeline's.
  void predefined() {
    for (const Substitute& substitute : pipeline_.substitutes) {
      const bool used = std::ranges::any_of(references_.followed(), [&](const std::string& path) {
        return ("." + path + ".").find("." + substitute.name + ".") != std::string::npos;
      });
      if (used) imported_.predefined.push_back(to_line(substitute));
    }
  }

  const RollPipeline& pipeline_;
  const std::string& role_;
  Interpolator references_;
  Imported imported_;
  json spec_, training_;
};

}  // namespace

std::string to_line(const Substitute& substitute) {
  return substitute.name + ": dsj's own " + predefined_path(substitute.name) + ", because " +
         substitute.missing + " is not there (" + substitute.place + ")";
}

Result<RollPipeline> read_roll(Files& files, const std::string& path,
                               const std::vector<std::string>& search_paths) {
  DSJ_TRY(Composed composed, compose(files, path, search_paths, predefined_files()));
  RollPipeline pipeline{.value = std::move(composed.value),
                        .source = path,
                        .sources = std::move(composed.sources),
                        .substitutes = std::move(composed.substitutes),
                        .notes = std::move(composed.notes)};
  Interpolator references(pipeline.value, path);
  for (const auto& [name, value] : pipeline.value.items()) {
    if (looks_like_role(value) && name.find_first_of("./~") == std::string::npos) {
      pipeline.roles.push_back(describe(references, name));
    } else if (name == "rewards" && value.is_object()) {
      for (const auto& [reward, settings] : value.items())
        if (looks_like_role(settings) && reward.find_first_of("./~") == std::string::npos)
          pipeline.roles.push_back(describe(references, name + "." + reward));
    }
  }
  return pipeline;
}

Result<Imported> import_role(const RollPipeline& pipeline, const std::string& role) {
  std::vector<std::string> names;
  for (const RollRole& one : pipeline.roles) names.push_back(one.path);
  if (std::find(names.begin(), names.end(), role) == names.end()) {
    std::string known;
    for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
    return bad_input("there is no role \"" + role + "\"", pipeline.source,
                     names.empty() ? "the file has no roles" : "there are " + known);
  }
  return RoleImport(pipeline, role).run();
}

}  // namespace dsj::jobimport
