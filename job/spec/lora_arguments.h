// The arguments of scripts for LoRA and for a base in 4 bits, with their fields of
// spec.training.lora. Internal to jobspec.
// Tested by: tests/job/spec/arguments_test.cc
#pragma once

#include <algorithm>
#include <iterator>
#include <string>

namespace dsj::jobspec {

/// A PEFT setting as Hugging Face's scripts name it, and its field of spec.training.lora.
struct LoraArgument {
  const char* name;
  const char* field;
  bool list = false;       ///< several words, or one with commas
  const char* other = "";  ///< LLaMA-Factory's or ms-swift's name
  bool is_switch = false;
};
inline constexpr LoraArgument kLoraArguments[] = {
    {"lora_r", "r", false, "lora_rank"},
    {"lora_alpha", "alpha"},
    {"lora_dropout", "dropout"},
    {"lora_target_modules", "targetModules", true, "lora_target"},
    {"lora_target_parameters", "targetParameters", true, "target_parameters"},
    {"lora_modules_to_save", "modulesToSave", true},
    {"ensure_weight_tying", "ensureWeightTying", false, "peft_ensure_weight_tying", true},
    {"lora_bias", "bias"},
    {"use_rslora", "useRslora", false, "", true},
    {"loraplus_lr_ratio", "loraplusLrRatio", false, "lorap_lr_ratio"},
    {"adapter_name_or_path", "adapterNameOrPath", false, "lora_model_dir"},
    {"lora_weight_path", "adapterNameOrPath"},
    {"use_dora", "useDora", false, "peft_use_dora", true},
    {"init_lora_weights", "initLoraWeights", false, "peft_init_lora_weights"},
    {"layers_to_transform", "layersToTransform", false, "peft_layers_to_transform"},
    {"rank_pattern", "rankPattern"},
    {"alpha_pattern", "alphaPattern"}};

inline const LoraArgument* lora_argument(const std::string& name) {
  for (const LoraArgument& argument : kLoraArguments)
    if (name == argument.name || (name == argument.other && !name.empty())) return &argument;
  return nullptr;
}

/// An argument of scripts for a base in 4 bits, and its field of spec.training.lora. The first one
/// of a field is transformers' or TRL's.
struct BaseArgument {
  enum class Kind { Switch, Bits, Setting } kind;
  const char* name;
  const char* field;
  bool two_levels = false;  ///< by default, its tool quantizes the scales, too
};
inline constexpr char kIn4Bits[] = "loadIn4bit", kTwoLevels[] = "bnb4bitUseDoubleQuant";
inline constexpr BaseArgument kBaseArguments[] = {
    {BaseArgument::Kind::Switch, "load_in_4bit", kIn4Bits},
    {BaseArgument::Kind::Switch, "q_lora", kIn4Bits, true},
    {BaseArgument::Kind::Bits, "quantization_bit", kIn4Bits, true},
    {BaseArgument::Kind::Bits, "bits", kIn4Bits, true},
    {BaseArgument::Kind::Setting, "bnb_4bit_quant_type", "bnb4bitQuantType"},
    {BaseArgument::Kind::Setting, "quantization_type", "bnb4bitQuantType"},
    {BaseArgument::Kind::Setting, "quant_type", "bnb4bitQuantType"},
    {BaseArgument::Kind::Setting, "bnb_4bit_use_double_quant", kTwoLevels},
    {BaseArgument::Kind::Setting, "use_bnb_nested_quant", kTwoLevels},
    {BaseArgument::Kind::Setting, "double_quantization", kTwoLevels},
    {BaseArgument::Kind::Setting, "double_quant", kTwoLevels},
    {BaseArgument::Kind::Setting, "bnb_4bit_compute_dtype", "bnb4bitComputeDtype"}};

inline const BaseArgument* base_argument(const std::string& name) {
  const auto* found = std::ranges::find(
      kBaseArguments, name, [](const BaseArgument& one) { return std::string(one.name); });
  return found == std::end(kBaseArguments) ? nullptr : found;
}

/// Whether the argument turns LoRA on or off.
inline bool is_lora_switch(const std::string& name) {
  return name == "use_lora" || name == "use_peft";
}

}  // namespace dsj::jobspec
