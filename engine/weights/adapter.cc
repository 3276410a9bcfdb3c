#include "engine/weights/adapter.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace dsj::weights {
namespace {

using nlohmann::json;

constexpr int64_t kAdapterConfigBytesMax = 16 << 20;
constexpr std::string_view kAdapterTensors[] = {".lora_A.weight", ".lora_B.weight",
                                                ".lora_embedding_A", ".lora_embedding_B",
                                                ".lora_magnitude_vector"};
/// The version of PEFT with these fields.
constexpr char kPeftVersion[] = "0.21.2";

/// Null and empty values mean "off" in PEFT.
bool is_off(const json& value) {
  return value.is_null() || value == false ||
         ((value.is_object() || value.is_array()) && value.empty());
}

Status refuse_unbuilt(const json& config, const std::string& path) {
  for (const char* name :
       {"lora_bias", "layer_replication", "layers_pattern", "trainable_token_indices", "use_qalora",
        "use_bdlora", "alora_invocation_tokens", "arrow_config", "kasa_config", "monteclora_config",
        "velora_config", "loftq_config"}) {
    if (config.contains(name) && !is_off(config[name])) {
      return bad_input(
          std::string("\"") + name + "\" is " + config[name].dump() + ", which is not built", path,
          "adapters of plain LoRA are read");
    }
  }
  if (const json init = config.value("init_lora_weights", json(true)); init.is_string())
    for (const char* word : {"pissa", "olora", "corda", "lora_ga", "loftq"})
      if (init.get_ref<const std::string&>().starts_with(word))
        return bad_input("\"init_lora_weights\" is " + init.dump() +
                             ": the adapter is of a base whose weights it has changed",
                         path,
                         "PEFT converts it: save_pretrained with "
                         "path_initial_model_for_weight_conversion");
  const std::string bias = config.value("bias", json("none")).dump();
  if (bias != "\"none\"")
    return bad_input("\"bias\" is " + bias + "; only \"none\" is built", path);
  return {};
}

/// What a directory without adapter_config.json has instead.
Result<std::string> remedy_for(Files& files, const std::string& directory) {
  DSJ_TRY(const auto entries, files.list_dir(directory));
  std::string deeper;
  for (const DirEntry& entry : entries) {
    if (entry.kind != EntryKind::Directory) continue;
    const std::string inner = path_join(directory, entry.name);
    DSJ_TRY(const bool there, files.exists(path_join(inner, kAdapterConfigFile)));
    if (there) deeper += (deeper.empty() ? "" : ", ") + inner;
  }
  if (!deeper.empty()) return "name the adapter: " + deeper;
  return "PEFT's save_pretrained writes it; without it rank, alpha and modules are unknown";
}

/// Refuses names of a model in memory: "lora_A.default.weight", and other prefixes than PEFT's.
Status check_names(const WeightSource& source) {
  const std::string where = source.paths()[0];
  if (source.tensors().empty()) return bad_input("has no tensors", where);
  for (const TensorInfo& tensor : source.tensors()) {
    if (tensor.elements == 0)
      return bad_input("tensor \"" + tensor.name + "\" has no values", where,
                       "it was saved under ZeRO-3 without gathering them: take a checkpoint's");
    const bool named =
        tensor.name.find(".lora_") == std::string::npos || is_adapter_tensor(tensor.name);
    if (named && tensor.name.starts_with(kAdapterPrefix)) continue;
    return bad_input("tensor \"" + tensor.name + "\" has another name than PEFT's", where,
                     std::string("PEFT's save_pretrained writes \"") + kAdapterPrefix +
                         "MODULE.lora_A.weight\", without the adapter's name; rename the tensors");
  }
  return {};
}

}  // namespace

bool is_adapter_tensor(std::string_view name) {
  return std::ranges::any_of(kAdapterTensors,
                             [&](std::string_view end) { return name.ends_with(end); });
}

std::string adapted_module(const std::string& name) {
  for (const std::string_view end : kAdapterTensors)
    if (name.ends_with(end)) return name.substr(0, name.size() - end.size());
  return name;
}

std::string adapter_config_text(const AdapterConfig& config) {
  const LoraArgs& lora = config.lora;
  json targets = lora.target_modules, parameters = nullptr, saved = nullptr, alpha = lora.alpha;
  if (!lora.target_pattern.empty()) targets = lora.target_pattern;
  if (!lora.target_parameters.empty()) parameters = lora.target_parameters;
  if (!lora.modules_to_save.empty()) saved = lora.modules_to_save;
  if (lora.alpha == std::floor(lora.alpha)) alpha = static_cast<int64_t>(lora.alpha);
  json ranks = json::object(), alphas = json::object(), layers = nullptr, init = true;
  for (const auto& [key, rank] : lora.rank_pattern) ranks[key] = rank;
  for (const auto& [key, own] : lora.alpha_pattern) alphas[key] = own;
  if (!lora.layers_to_transform.empty()) layers = lora.layers_to_transform;
  if (lora.init == AdapterInit::Gaussian) init = "gaussian";
  if (lora.init == AdapterInit::Random) init = false;
  const json object = {{"alora_invocation_tokens", nullptr},
                       {"alpha_pattern", alphas},
                       {"arrow_config", nullptr},
                       {"auto_mapping", nullptr},
                       {"base_model_name_or_path", config.base},
                       {"bias", "none"},
                       {"corda_config", nullptr},
                       {"ensure_weight_tying", lora.ensure_weight_tying},
                       {"eva_config", nullptr},
                       {"exclude_modules", nullptr},
                       {"fan_in_fan_out", config.fan_in_fan_out},
                       {"inference_mode", true},
                       {"init_lora_weights", init},
                       {"kasa_config", nullptr},
                       {"layer_replication", nullptr},
                       {"layers_pattern", nullptr},
                       {"layers_to_transform", layers},
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
                       {"rank_pattern", ranks},
                       {"revision", nullptr},
                       {"target_modules", targets},
                       {"target_parameters", parameters},
                       {"task_type", config.scored ? "SEQ_CLS" : "CAUSAL_LM"},
                       {"trainable_token_indices", nullptr},
                       {"use_bdlora", nullptr},
                       {"use_dora", lora.use_dora},
                       {"use_qalora", false},
                       {"use_rslora", lora.use_rslora},
                       {"velora_config", nullptr}};
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<AdapterConfig> read_adapter_config(Files& files, const std::string& directory) {
  const std::string path = path_join(directory, kAdapterConfigFile);
  DSJ_TRY(const bool there, files.exists(path));
  if (const auto remedy = there ? std::string() : remedy_for(files, directory); !there && remedy)
    return bad_input("there is no such file", path, *remedy);
  DSJ_TRY(const std::string text, files.read_all(path, kAdapterConfigBytesMax));
  const json config = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return bad_input("a JSON object is expected", path);
  if (!config.contains("peft_type") && config.contains("lora_parameters"))
    return bad_input("is an adapter of MLX, whose matrices have other names and shapes", path,
                     "adapters of PEFT are read; mlx_lm.fuse merges it");
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
                                     {"target_parameters", "targetParameters"},
                                     {"modules_to_save", "modulesToSave"},
                                     {"ensure_weight_tying", "ensureWeightTying"},
                                     {"use_dora", "useDora"},
                                     {"rank_pattern", "rankPattern"},
                                     {"alpha_pattern", "alphaPattern"},
                                     {"layers_to_transform", "layersToTransform"},
                                     {"use_rslora", "useRslora"}}) {
    if (config.contains(theirs) && !config[theirs].is_null()) own[ours] = config[theirs];
  }
  if (const json init = config.value("init_lora_weights", json());
      init == false || init == "gaussian")
    own["initLoraWeights"] = init;
  AdapterConfig out;
  auto lora = lora_args_from_json(own, path);
  if (!lora) return std::unexpected(lora.error());
  out.lora = std::move(*lora);
  const json base = config.value("base_model_name_or_path", json());
  if (base.is_string()) out.base = base.get<std::string>();
  out.excludes = config.contains("exclude_modules") && !is_off(config["exclude_modules"]);
  out.fan_in_fan_out = config.value("fan_in_fan_out", json(false)) == true;
  return out;
}

Result<WeightSource> open_adapter_weights(Files& files, const std::string& directory) {
  std::string path = path_join(directory, kAdapterWeightsFile);
  DSJ_TRY(const bool there, files.exists(path));
  if (!there) {
    const std::string older = path_join(directory, kAdapterTorchFile);
    DSJ_TRY(const bool torch, files.exists(older));
    if (!torch) return bad_input("there is no such file", path, "it holds the adapter's weights");
    path = older;
  }
  DSJ_TRY(auto source, WeightSource::open_file(files, path));
  DSJ_TRY_STATUS(check_names(source));
  return source;
}

LoraArgs lora_of(const AdapterConfig& config, const WeightSource& weights) {
  LoraArgs lora = config.lora;
  if (!config.excludes) return lora;
  lora.target_pattern.clear();
  lora.target_modules.clear();
  for (const TensorInfo& tensor : weights.tensors())
    if (tensor.name.ends_with(kAdapterTensors[0]))
      lora.target_modules.push_back(adapted_module(tensor.name).substr(sizeof(kAdapterPrefix) - 1));
  return lora;
}

}  // namespace dsj::weights
