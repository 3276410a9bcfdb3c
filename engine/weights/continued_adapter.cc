#include "engine/weights/continued_adapter.h"

#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/weights/adapter.h"
#include "engine/weights/tensor_check.h"
#include "job/layout/lora.h"

namespace dsj::weights {
namespace {

using nlohmann::json;

constexpr char kAdapter[] = "lora.adapterNameOrPath";

Error in_adapter(const Error& error) {
  return {ErrorKind::BadInput, error.to_string(), kAdapter, {}};
}

/// Fields that determine how the adapter's tensors are used. The job cannot change them.
constexpr const char* kOfTheAdapter[] = {
    "r", "alpha", "useRslora", "useDora", "rankPattern", "alphaPattern", "ensureWeightTying"};
/// Fields that determine which tensors the adapter has.
constexpr const char* kModules[] = {"targetModules", "targetParameters", "modulesToSave",
                                    "layersToTransform"};

json value_of(const json& settings, const char* field) {
  if (settings.contains(field)) return settings[field];
  const std::string_view name = field;
  if (name.ends_with("Pattern")) return json::object();
  return name.starts_with("use") || name.starts_with("ensure") ? json(false) : json();
}

/// The job's settings, without the adapter that it begins with.
json settings_of(const LoraArgs& asked) {
  LoraArgs plain = asked;
  plain.adapter.clear();
  return to_json(plain);
}

Status check_settings(const LoraArgs& asked, const LoraArgs& saved) {
  const json mine = settings_of(asked), theirs = to_json(saved);
  for (const char* field : kOfTheAdapter) {
    if (!asked.says(field)) continue;
    const json a = value_of(mine, field), b = value_of(theirs, field);
    if (a != b)
      return bad_input(
          "found " + a.dump() + "; the adapter in " + asked.adapter + " was made with " + b.dump(),
          std::string("lora.") + field, "remove it: the adapter sets it");
  }
  return {};
}

/// The parameters that are trained, with their shapes.
std::map<std::string, std::vector<int64_t>> trained_of(const layout::ModelConfig& model,
                                                       const LoraArgs& lora) {
  std::map<std::string, std::vector<int64_t>> trained;
  for (const layout::UnitSpec& unit : layout::units_of(model, lora))
    for (const layout::Parameter& parameter : unit.parameters)
      if (!parameter.frozen) trained[parameter.name] = parameter.shape;
  return trained;
}

/// The job must name the same modules as the adapter.
Status check_modules(const layout::ModelConfig& model, const LoraArgs& asked, const LoraArgs& saved,
                     const LoraArgs& resolved) {
  for (const char* field : kModules) {
    if (!asked.says(field)) continue;
    LoraArgs named = saved;
    if (std::string_view(field) == "targetModules") {
      named.target_modules = asked.target_modules;
      named.target_pattern = asked.target_pattern;
      named.no_modules = asked.no_modules;
    } else if (std::string_view(field) == "targetParameters") {
      named.target_parameters = asked.target_parameters;
    } else if (std::string_view(field) == "modulesToSave") {
      named.modules_to_save = asked.modules_to_save;
    } else {
      named.layers_to_transform = asked.layers_to_transform;
    }
    DSJ_TRY(const LoraArgs mine, layout::resolve_lora(model, named));
    const auto a = trained_of(model, mine), b = trained_of(model, resolved);
    if (a == b) continue;
    const auto lacks = [](const auto& one, const auto& other) {
      for (const auto& [name, shape] : one)
        if (!other.contains(name)) return name;
      return std::string();
    };
    const std::string more = lacks(a, b), less = lacks(b, a);
    return bad_input("names other modules than the adapter in " + asked.adapter + ", which " +
                         (more.empty() ? "also has " + less : "lacks " + more),
                     std::string("lora.") + field, "remove it: the adapter sets the modules");
  }
  return {};
}

Status check_adapter_tensors(const layout::ModelConfig& model, const LoraArgs& lora,
                             const WeightSource& source) {
  auto trained = trained_of(model, lora);
  if (const auto tied = layout::tied_pair(model, lora)) {
    DSJ_TRY_STATUS(check_tied_copies(source, *tied));
    trained[tied->head] = trained.at(tied->embedding);
  }
  for (const auto& [name, shape] : trained)
    DSJ_TRY_STATUS(check_tensor(source, kAdapterPrefix + name, shape));
  for (const TensorInfo& tensor : source.tensors()) {
    const std::string_view prefix = kAdapterPrefix;
    if (tensor.name.starts_with(prefix) && trained.contains(tensor.name.substr(prefix.size())))
      continue;
    return bad_input("tensor \"" + tensor.name + "\" belongs to no module that this job trains",
                     source.paths()[0], "name the model that the adapter was made for");
  }
  return {};
}

}  // namespace

Result<LoraArgs> resolve_adapter(Files& files, const layout::ModelConfig& model,
                                 const LoraArgs& asked) {
  if (asked.adapter.empty()) return layout::resolve_lora(model, asked);
  const auto config = read_adapter_config(files, asked.adapter);
  if (!config) return std::unexpected(in_adapter(config.error()));
  const LoraArgs& saved = config->lora;
  DSJ_TRY_STATUS(check_settings(asked, saved));
  if (config->fan_in_fan_out != layout::stored_in_out(model))
    return bad_input("the adapter in " + asked.adapter + " is for weights that are stored as " +
                         (config->fan_in_fan_out ? "[in, out]" : "[out, in]"),
                     kAdapter, "name the model that it was made for");
  const auto source = open_adapter_weights(files, asked.adapter);
  if (!source) return std::unexpected(in_adapter(source.error()));
  LoraArgs own = lora_of(*config, *source);  // then the settings that belong to the run
  own.init = AdapterInit::Zero;
  if (asked.says("dropout")) own.dropout = asked.dropout;
  own.lr_ratio = asked.lr_ratio;
  own.load_in_4bit = asked.load_in_4bit;
  own.double_quant = asked.double_quant;
  own.compute_dtype = asked.compute_dtype;
  DSJ_TRY(LoraArgs resolved, layout::resolve_lora(model, own));
  DSJ_TRY_STATUS(check_modules(model, asked, own, resolved));
  if (const auto there = check_adapter_tensors(model, resolved, *source); !there)
    return std::unexpected(in_adapter(there.error()));
  return resolved;
}

Result<std::optional<WeightSource>> open_continued(Files& files,
                                                   const std::optional<LoraArgs>& asked) {
  if (!asked || asked->adapter.empty()) return std::optional<WeightSource>();
  DSJ_TRY(auto source, open_adapter_weights(files, asked->adapter));
  return std::optional<WeightSource>(std::move(source));
}

}  // namespace dsj::weights
