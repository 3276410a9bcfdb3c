// An adapter directory, as PEFT 0.21 writes and reads it: adapter_config.json and
// adapter_model.safetensors, whose tensors are named "base_model.model." plus the model's own name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "job/lora_args.h"

namespace dsj::weights {

inline constexpr char kAdapterConfigFile[] = "adapter_config.json";
inline constexpr char kAdapterWeightsFile[] = "adapter_model.safetensors";
inline constexpr char kAdapterPrefix[] = "base_model.model.";

struct AdapterConfig {
  LoraArgs lora;                ///< resolved: targets are names or a regular expression
  std::string base;             ///< base_model_name_or_path: a directory or a hub id
  bool scored = false;          ///< a reward model's, PEFT task type SEQ_CLS; write-only
  bool fan_in_fan_out = false;  ///< the adapted weights are stored [in, out] (GPT-2's Conv1D)
};

/// Whether the name is "...lora_A.weight", "...lora_B.weight" or DoRA's "...lora_magnitude_vector".
bool is_adapter_tensor(std::string_view name);
/// Of such a name "...": the adapted module.
std::string adapted_module(const std::string& name);

/// Every field that PEFT writes, in PEFT's order.
std::string adapter_config_text(const AdapterConfig& config);

/// Reads DIRECTORY/adapter_config.json. BadInput, with the field's name: not LoRA, or a setting
/// that changes what the adapter computes and is not supported (PiSSA, biases ...).
Result<AdapterConfig> read_adapter_config(Files& files, const std::string& directory);

}  // namespace dsj::weights
