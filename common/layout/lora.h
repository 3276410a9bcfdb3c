// LoRA on a model's units: which modules get adapters, which are trained whole, what is frozen.
// Names and matching are PEFT's (0.21), so that its adapter_config.json means the same there.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/layout/units.h"
#include "common/lora_args.h"

namespace dsj::layout {

/// `lora` with its targets as names wherever names say it ("all-linear" and the model type's
/// default become lists; a regular expression stays) and lists sorted, checked against the model's
/// modules. BadInput, where = "lora.targetModules" or "lora.modulesToSave": a name that no module
/// ends with (lists the model's), a module that cannot have an adapter, one that is adapted and
/// trained whole, a part of a tied head.
Result<LoraArgs> resolve_lora(const ModelConfig& model, const LoraArgs& lora);

/// units_of(model) with everything frozen but the modules to save, and after each unit's own
/// parameters its adapters: all A [r, in], then all B [out, r], so that neighbours share a product.
/// `lora` from resolve_lora(); unset: every parameter is trained.
std::vector<UnitSpec> units_of(const ModelConfig& model, const std::optional<LoraArgs>& lora);

/// GPT-2 keeps its matrices as its Conv1D multiplies them: [in, out].
bool stored_in_out(const ModelConfig& model);

/// "model.layers.0.self_attn.q_proj.weight" → "model.layers.0.self_attn.q_proj".
std::string module_of(const std::string& parameter);

/// Whether modulesToSave means this module, or one that holds it.
bool is_saved_whole(const LoraArgs& lora, const std::string& module);

}  // namespace dsj::layout
