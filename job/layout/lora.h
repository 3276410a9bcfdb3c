// LoRA on a model's units: which modules get adapters, which are trained in full, what is frozen.
// Names and matching are PEFT's (0.21), so its adapter_config.json has the same meaning here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "job/layout/units.h"
#include "job/lora_args.h"

namespace dsj::layout {

/// Checks `lora` against the model's modules. Returns it with its targets as names if possible
/// ("all-linear" and the model type's default become lists; a regular expression stays), with sorted
/// lists, both modules of a tied weight, and of the settings of a 4-bit base only those that affect
/// its values. A router in targetModules becomes one in targetParameters, as in PEFT. Errors:
/// BadInput at "lora.targetModules" or "lora.modulesToSave" for a name that no module ends with
/// (lists the model's names), a module that cannot have an adapter, a module both adapted and
/// trained in full, or a part of a tied head; at "lora.ensureWeightTying", "lora.targetParameters",
/// "lora.dropout", "lora.layersToTransform", "lora.rankPattern" or "lora.alphaPattern"; at
/// "lora.useDora" and "lora.loadIn4bit" for a model or base without it.
Result<LoraArgs> resolve_lora(const ModelConfig& model, const LoraArgs& lora);

/// units_of(model) with everything frozen except the modules to save. For a 4-bit base the weights
/// of frozen linear layers are packed, as in transformers: not the embedding, the head, norms,
/// biases, routers, or experts in one tensor. Each unit's own parameters are followed by its
/// adapters: all A [r, in], then all B [out, r], then DoRA's magnitudes [out], so that adjacent ones
/// share a product. An adapter of all experts of a layer is "...experts.lora_A.weight", as PEFT's;
/// if both of the experts' parameters have one, the first is "...experts.base_layer.lora_A.weight".
/// `lora` comes from resolve_lora(); if unset, every parameter is trained.
std::vector<UnitSpec> units_of(const ModelConfig& model, const std::optional<LoraArgs>& lora);

/// Rank and scaling of a module's adapter, from rankPattern and alphaPattern or else r and alpha.
/// `module` is PEFT's name. Errors: BadInput if a pattern does not compile, or if two patterns with
/// different values match.
struct RankAndScaling {
  int64_t rank;
  double scaling;
};
Result<RankAndScaling> rank_and_scaling(const LoraArgs& lora, const std::string& module);

/// A weight that an adapter changes.
struct AdaptedPart {
  int weight = 0;       ///< index of its unit's parameter
  int64_t expert = -1;  ///< whose rows of A and columns of B; -1: the weight has them all, in order
  int64_t first = 0;    ///< the first of the adapter's outputs that are the weight's
};
/// One part, except where each expert has tensors of its own.
std::vector<AdaptedPart> adapted_parts(const UnitSpec& unit, const Adapter& adapter);

/// Elements of a weight whose row lengths DoRA computes at a time (engine/models/ops/dora.h).
inline constexpr int64_t kDoraPiece = 1 << 20;

/// Whether matrices are stored as [in, out], as GPT-2's Conv1D does.
bool stored_in_out(const ModelConfig& model);

/// "model.layers.0.self_attn.q_proj.weight" → "model.layers.0.self_attn.q_proj".
std::string module_of(const std::string& parameter);

/// The module of a parameter in transformers' and PEFT's names. Files of a model with a vision part
/// have another name for the text part.
std::string module_name(const ModelConfig& model, const std::string& parameter);

/// Whether modulesToSave names this module or one that contains it.
bool is_saved_whole(const LoraArgs& lora, const std::string& module);

/// The parameter of a tied embedding that is trained whole beside adapters, and the output layer's
/// name for it: PEFT's files have the weight twice. nullopt if there is none. `lora`: resolved.
struct TiedPair {
  std::string embedding, head;
};
std::optional<TiedPair> tied_pair(const ModelConfig& model, const LoraArgs& lora);

}  // namespace dsj::layout
