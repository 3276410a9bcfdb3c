#include "engine/weights/adapter.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace dsj::weights {
namespace {

using nlohmann::json;

constexpr int64_t kAdapterConfigBytesMax = 16 << 20;
/// The version of PEFT with these fields.
constexpr char kPeftVersion[] = "0.21.2";

/// Null and empty values mean "off" in PEFT.
bool is_off(const json& value) {
  return value.is_null() || value == false ||
         ((value.is_object() || value.is_array()) && value.empty());
}

Status refuse_unbuilt(const json& config, const std::string& path) {
  for (const char* name : {"use_dora", "rank_pattern", "alpha_pattern", "lora_bias",
                           "layer_replication", "target_parameters", "trainable_token_indices",
                           "use_qalora", "use_bdlora", "alora_invocation_tokens", "arrow_config",
                           "kasa_config", "monteclora_config", "velora_config", "loftq_config"}) {
    if (config.contains(name) && !is_off(config[name])) {
      return bad_input(
          std::string("\"") + name + "\" is " + config[name].dump() + ", which is not built", path,
          "adapters of plain LoRA are read");
    }
  }
  const std::string bias = config.value("bias", json("none")).dump();
  if (bias != "\"none\"")
    return bad_input("\"bias\" is " + bias + "; only \"none\" is built", path);
  return {};
}

}  // namespace

bool is_adapter_tensor(std::string_view name) {
  return name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight");
}

std::string adapter_config_text(const AdapterConfig& config) {
  const LoraArgs& lora = config.lora;
  json targets = lora.target_modules, saved = nullptr, alpha = lora.alpha;
  if (!lora.target_pattern.empty()) targets = lora.target_pattern;
  if (!lora.modules_to_save.empty()) saved = lora.modules_to_save;
  if (lora.alpha == std::floor(lora.alpha)) alpha = static_cast<int64_t>(lora.alpha);
  const json object = {{"alora_invocation_tokens", nullptr},
                       {"alpha_pattern", json::object()},
                       {"arrow_config", nullptr},
                       {"auto_mapping", nullptr},
                       {"base_model_name_or_path", config.base},
                       {"bias", "none"},
                       {"corda_config", nullptr},
                       {"ensure_weight_tying", false},
                       {"eva_config", nullptr},
                       {"exclude_modules", nullptr},
                       {"fan_in_fan_out", config.fan_in_fan_out},
                       {"inference_mode", true},
                       {"init_lora_weights", true},
                       {"kasa_config", nullptr},
                       {"layer_replication", nullptr},
                       {"layers_pattern", nullptr},
                       {"layers_to_transform", nullptr},
                       {"loftq_config", json::object()},
                       {"lora_alpha", alpha},
                       {"lora_bias", false},
                       {"lora_dropout", lora.dropout},
                       {"lora_ga_config", nullptr},
                       {"megatron_config", nullptr},
                       {"megatron_core", "megatron.core"},
                       {"modules_to_save", saved},
                       {"monteclora_config", nullptr},
                       {"peft_type", "LORA"},
                       {"peft_version", kPeftVersion},
                       {"qalora_group_size", 16},
                       {"r", lora.r},
                       {"rank_pattern", json::object()},
                       {"revision", nullptr},
                       {"target_modules", targets},
                       {"target_parameters", nullptr},
                       {"task_type", config.scored ? "SEQ_CLS" : "CAUSAL_LM"},
                       {"trainable_token_indices", nullptr},
                       {"use_bdlora", nullptr},
                       {"use_dora", false},
                       {"use_qalora", false},
                       {"use_rslora", lora.use_rslora},
                       {"velora_config", nullptr}};
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<AdapterConfig> read_adapter_config(Files& files, const std::string& directory) {
  const std::string path = path_join(directory, kAdapterConfigFile);
  DSJ_TRY(const std::string text, files.read_all(path, kAdapterConfigBytesMax));
  const json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return bad_input("a JSON object is expected", path);
  if (config.value("peft_type", json()) != "LORA")
    return bad_input(
        "\"peft_type\" is " + config.value("peft_type", json()).dump() + "; LORA is read", path);
  DSJ_TRY_STATUS(refuse_unbuilt(config, path));
  if (config.value("task_type", json()) == "SEQ_CLS")
    return bad_input(
        "\"task_type\" is SEQ_CLS: the adapter is of a reward model, which scores answers and "
        "generates none",
        path, "PEFT's merge_and_unload() beside AutoModelForSequenceClassification merges it");
  // Rename PEFT's fields to ours. Types and ranges are checked as in a manifest.
  json own = json::object();
  for (const auto& [theirs, ours] : {std::pair{"r", "r"},
                                     {"lora_alpha", "alpha"},
                                     {"lora_dropout", "dropout"},
                                     {"target_modules", "targetModules"},
                                     {"modules_to_save", "modulesToSave"},
                                     {"use_rslora", "useRslora"}}) {
    if (config.contains(theirs) && !config[theirs].is_null()) own[ours] = config[theirs];
  }
  AdapterConfig out;
  auto lora = lora_args_from_json(own, path);
  if (!lora) return std::unexpected(lora.error());
  out.lora = std::move(*lora);
  const json base = config.value("base_model_name_or_path", json());
  if (base.is_string()) out.base = base.get<std::string>();
  out.fan_in_fan_out = config.value("fan_in_fan_out", json(false)) == true;
  return out;
}

}  // namespace dsj::weights
