// spec.training.lora: low-rank adapters instead of full weights (Hu et al. 2021), with PEFT's names
// and defaults. layout/lora.h says which weights of a model get adapters.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"

namespace dsj {

/// Initial values of new adapters. None of them changes the base's weights.
enum class AdapterInit {
  Zero,      ///< A uniform as in torch's Linear, B zeros: PEFT's true
  Gaussian,  ///< A normal with standard deviation 1 / r, B zeros
  Random,    ///< both uniform as in torch's Linear: PEFT's false
};

struct LoraArgs {
  int64_t r = 8;       ///< rank of an update, > 0
  double alpha = 8;    ///< an update is multiplied by scaling()
  double dropout = 0;  ///< [0, 1): on an adapter's input, in training
  /// Suffixes of module names ("q_proj"); each must match a module. If this and target_pattern are
  /// empty, PEFT's default for the model type holds.
  std::vector<std::string> target_modules;
  /// Instead of target_modules: "all-linear" (every linear layer except lm_head), or a regular
  /// expression that must match a module's full name.
  std::string target_pattern;
  bool no_modules = false;  ///< "targetModules: []" beside target_parameters: no module is adapted
  /// Suffixes of names of parameters ("mlp.experts.down_proj"): of those that hold all experts of a
  /// layer, and of routers ("gate.weight"). Each must match one.
  std::vector<std::string> target_parameters;
  /// Suffixes of names of modules that are trained and saved in full, beside the adapters.
  std::vector<std::string> modules_to_save;
  /// The weight that embedding and output layer share (tie_word_embeddings) is trained in full and
  /// stays one. False in a resolved layout that does not train it.
  bool ensure_weight_tying = false;
  /// LoRA+: B and all trained vectors have this multiple of the learning rate (job/plan/lora_plus.h).
  /// 1 in a resolved layout, because it does not affect which parameters exist.
  double lr_ratio = 1;
  bool use_rslora = false;  ///< alpha / sqrt(r) instead of alpha / r (Kalajdzievski 2023)
  bool use_dora = false;    ///< a magnitude for each output column (Liu et al. 2024)
  AdapterInit init = AdapterInit::Zero;
  /// Rank or alpha, instead of r and alpha, of modules whose name, or a suffix after a dot, matches
  /// the key. Keys with different values must not match the same module (layout/lora.h).
  std::vector<std::pair<std::string, int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  std::vector<int64_t> layers_to_transform;  ///< layers with adapters; empty means all
  /// A directory in PEFT's layout, with the adapter that the run begins with. Fields that `said` does
  /// not list come from that adapter (weights::resolve_adapter). Both are empty in a resolved layout.
  std::string adapter;
  std::vector<std::string> said;  ///< fields that the user set beside `adapter`, sorted
  /// The linear layers of the base model are stored in 4 bits as NF4 (QLoRA, Dettmers et al. 2023).
  bool load_in_4bit = false;
  bool double_quant = false;  ///< also stores their scales in 8 bits; needs load_in_4bit
  /// The user's compute type: "float32", "bfloat16", "float16", or empty if not given. It must
  /// equal the type that ds_config resolves to.
  std::string compute_dtype;

  /// Scaling of an adapter with this rank and alpha.
  double scaling_of(int64_t rank, double its_alpha) const;
  double scaling() const { return scaling_of(r, alpha); }
  int64_t largest_rank() const;
  bool says(const char* field) const;
  /// False if modules are trained in full, without adapters (layout/trained_part.h).
  bool adapts() const {
    return !target_modules.empty() || !target_pattern.empty() || !target_parameters.empty();
  }
  friend bool operator==(const LoraArgs&, const LoraArgs&) = default;
};

/// Reads {r, alpha, dropout, targetModules, targetParameters, modulesToSave, ensureWeightTying,
/// useRslora, bias, loraplusLrRatio, useDora, initLoraWeights, rankPattern, alphaPattern,
/// layersToTransform, adapterNameOrPath} and, with the names of transformers' BitsAndBytesConfig,
/// {loadIn4bit, bnb4bitQuantType, bnb4bitUseDoubleQuant, bnb4bitComputeDtype}. targetModules is a
/// list of names or one string. Errors: BadInput with the path if a field is unknown, a value is out
/// of range, or a setting is not built (bias other than "none", PiSSA, fp4, 8 bits ...).
Result<LoraArgs> lora_args_from_json(const nlohmann::json& object, const std::string& path);
/// Writes every field, in the form that lora_args_from_json() reads; with `adapter` those in `said`.
nlohmann::json to_json(const LoraArgs& args);

/// The differences, for a message: "r 8 → 16, targetModules [...] → [...]". Empty if equal.
std::string differences(const LoraArgs& before, const LoraArgs& after);

}  // namespace dsj
