// An adapter directory, as PEFT 0.21 writes and reads it: adapter_config.json and
// adapter_model.safetensors (before 2023 adapter_model.bin), whose tensors are named
// "base_model.model." plus the model's own name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/adapter_files.h"
#include "engine/weights/weight_source.h"
#include "job/lora_args.h"

namespace dsj::weights {

struct AdapterConfig {
  LoraArgs lora;                ///< resolved: targets are names or a regular expression
  std::string base;             ///< base_model_name_or_path: a directory or a hub id
  bool scored = false;          ///< a reward model's, PEFT task type SEQ_CLS; write-only
  bool excludes = false;        ///< exclude_modules: the targets are those of the file; read-only
  bool fan_in_fan_out = false;  ///< the adapted weights are stored [in, out] (GPT-2's Conv1D)
};

/// Whether the name is "...lora_A.weight", "...lora_B.weight", an embedding's "...lora_embedding_A"
/// or "...lora_embedding_B", or DoRA's "...lora_magnitude_vector".
bool is_adapter_tensor(std::string_view name);
/// Of such a name "...": the adapted module.
std::string adapted_module(const std::string& name);

/// Every field that PEFT writes, in PEFT's order.
std::string adapter_config_text(const AdapterConfig& config);

/// Reads DIRECTORY/adapter_config.json. BadInput, with the field's name: not LoRA, or a setting
/// that changes what the adapter computes and is not supported (PiSSA, biases ...).
Result<AdapterConfig> read_adapter_config(Files& files, const std::string& directory);

/// Opens DIRECTORY's weights. BadInput: no weights, no tensor, a tensor without values, or names that
/// are not those of PEFT's save_pretrained.
Result<WeightSource> open_adapter_weights(Files& files, const std::string& directory);

/// The adapter's settings. Where it was made with exclude_modules, the targets are the modules that
/// `weights` has.
LoraArgs lora_of(const AdapterConfig& config, const WeightSource& weights);

}  // namespace dsj::weights
