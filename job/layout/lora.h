// LoRA on a model's units: which modules get adapters, which are trained whole, what is frozen.
// Names and matching are PEFT's (0.21), so that its adapter_config.json means the same here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "job/layout/units.h"
#include "job/lora_args.h"

namespace dsj::layout {

/// Checks `lora` against the model's modules. Returns it with its targets as names where names can
/// say it ("all-linear" and the model type's default become lists; a regular expression stays),
/// with sorted lists, and of the settings of a base in 4 bits with those alone that decide its values.
/// BadInput, where = "lora.targetModules" or "lora.modulesToSave": a name that no module ends with
/// (lists the model's), a module that cannot have an adapter, a module both adapted and trained
/// whole, a part of a tied head. "lora.loadIn4bit": a model whose linear layers are stored turned.
Result<LoraArgs> resolve_lora(const ModelConfig& model, const LoraArgs& lora);

/// units_of(model) with all frozen but the modules to save; for a base in 4 bits the weights of the
/// frozen linear layers are packed, as in transformers: not the embedding, the head, norms, biases,
/// experts that are one tensor, routers. After each unit's own parameters come
/// its adapters: all A [r, in], then all B [out, r], so that neighbours share a product. `lora`
/// comes from resolve_lora(); unset: every parameter is trained.
std::vector<UnitSpec> units_of(const ModelConfig& model, const std::optional<LoraArgs>& lora);

/// GPT-2 stores its matrices as its Conv1D multiplies them: [in, out].
bool stored_in_out(const ModelConfig& model);

/// "model.layers.0.self_attn.q_proj.weight" → "model.layers.0.self_attn.q_proj".
std::string module_of(const std::string& parameter);

/// The module of a parameter as transformers and PEFT name it. In the files of a model with a vision
/// part the text part has another name.
std::string module_name(const ModelConfig& model, const std::string& parameter);

/// Whether modulesToSave names this module, or one that holds it.
bool is_saved_whole(const LoraArgs& lora, const std::string& module);

}  // namespace dsj::layout
