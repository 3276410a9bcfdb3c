#include "job/dsconfig/config/optimizers.h"

#include <algorithm>
#include <sstream>

#include "common/check.h"
#include "common/text.h"

namespace dsj::dsconfig {
namespace {

/// Whether `list`, separated by spaces, contains `name`.
bool listed(std::string_view list, std::string_view name) {
  const auto words = words_of(list);
  return std::ranges::find(words, name) != words.end();
}

bool is_called(const Optimizer& one, std::string_view type) {
  if (one.name == type) return true;
  return one.any_case && one.name.size() == type.size() &&
         text::normalized(one.name) == text::normalized(type);
}

nlohmann::json value_of(const OptimizerParameter& parameter, const OptimizerConfig& config) {
  if (const auto* number = std::get_if<double OptimizerConfig::*>(&parameter.field))
    return config.*(*number);
  if (const auto* flag = std::get_if<bool OptimizerConfig::*>(&parameter.field))
    return config.*(*flag);
  const auto& pair = std::get<PairField>(parameter.field);
  return {config.*pair.first, config.*pair.second};
}

}  // namespace

std::vector<std::string> words_of(std::string_view list) {
  std::istringstream stream{std::string(list)};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

const Optimizer* find_optimizer(std::string_view type) {
  const auto found =
      std::ranges::find_if(kOptimizers, [&](const Optimizer& one) { return is_called(one, type); });
  return found == std::end(kOptimizers) ? nullptr : found;
}

const Optimizer* find_trainer_optimizer(std::string_view optim) {
  const auto found = std::ranges::find_if(
      kOptimizers, [&](const Optimizer& one) { return listed(one.trainer_names, optim); });
  return found == std::end(kOptimizers) ? nullptr : found;
}

const Optimizer& descriptor_of(OptimizerKind kind) {
  const auto found = std::ranges::find_if(kOptimizers, [&](const Optimizer& one) {
    return one.refusal.empty() && one.defaults.kind == kind;
  });
  DSJ_CHECK(found != std::end(kOptimizers));
  return *found;
}

bool takes(OptimizerKind kind, std::string_view parameter) {
  return listed(descriptor_of(kind).takes, parameter);
}

nlohmann::json default_of(const OptimizerParameter& parameter) {
  for (const Optimizer& one : kOptimizers)
    if (listed(one.takes, parameter.name)) return value_of(parameter, one.defaults);
  DSJ_CHECK(false, "%s belongs to no optimizer", parameter.name.data());
}

std::vector<StateSpec> states_of(const OptimizerConfig& config) {
  std::vector<StateSpec> states;
  for (const OptimizerState& state : descriptor_of(config.kind).states) {
    if (state.name.empty()) break;
    if (state.kept != nullptr && !state.kept(config)) continue;
    states.push_back({std::string(state.name), state.initial ? config.*state.initial : 0});
  }
  return states;
}

std::vector<StateSpec> matrix_states() {
  return {{"momentum_buffer"}};
}

std::string name_of(const OptimizerConfig& config) {
  if (config.kind == OptimizerKind::Adam) return config.decoupled_weight_decay ? "AdamW" : "Adam";
  return std::string(descriptor_of(config.kind).name);
}

nlohmann::json to_json(const OptimizerConfig& config) {
  nlohmann::json out = {{"type", name_of(config)}, {"weight_decay", config.weight_decay}};
  const auto names = words_of(descriptor_of(config.kind).takes);
  for (const OptimizerParameter& parameter : kOptimizerParameters) {
    if (std::ranges::find(names, parameter.name) == names.end() || parameter.name == "maximize")
      continue;
    const std::string_view name = parameter.shown.empty() ? parameter.name : parameter.shown;
    out[std::string(name)] = value_of(parameter, config);
  }
  if (!config.decays_all) out["weight_decay_of"] = "all but biases and norms";
  if (config.lora_plus_ratio != 1) out["lr_ratio_of_lora_B"] = config.lora_plus_ratio;
  if (config.maximize) out["maximize"] = true;  // torch's Adam has it, too
  if (config.eight_bit) out["state_bits"] = 8;
  return out;
}

nlohmann::json to_json(const MuonConfig& config) {
  return {{"adam_lr", config.adam_lr},
          {"ns_method", config.ns_method == NewtonSchulz::Gram ? "gram" : "standard"},
          {"ns_steps", config.ns_steps}};
}

const std::vector<std::string>& trainer_optimizers() {
  static const auto names = words_of(
      "adamw_torch adamw_torch_fused adamw_torch_xla adamw_torch_npu_fused adamw_hf "
      "adamw_apex_fused "
      "adafactor adamw_anyprecision adamw_torch_4bit adamw_torch_8bit ademamix sgd adagrad "
      "adamw_bnb_8bit adamw_8bit ademamix_8bit lion_8bit lion_32bit paged_adamw_32bit "
      "paged_adamw_8bit paged_ademamix_32bit paged_ademamix_8bit paged_lion_32bit "
      "paged_lion_8bit rmsprop rmsprop_bnb rmsprop_bnb_8bit rmsprop_bnb_32bit galore_adamw "
      "galore_adamw_8bit galore_adafactor galore_adamw_layerwise "
      "galore_adamw_8bit_layerwise galore_adafactor_layerwise lomo adalomo grokadamw "
      "schedule_free_radam schedule_free_adamw schedule_free_sgd apollo_adamw "
      "apollo_adamw_layerwise stable_adamw");
  return names;
}

}  // namespace dsj::dsconfig
