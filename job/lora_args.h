// spec.training.lora: low-rank adapters instead of whole weights (Hu et al. 2021), with PEFT's
// names and defaults. layout/lora.h says which weights of a model that means.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj {

struct LoraArgs {
  int64_t r = 8;       ///< rank of an update, > 0
  double alpha = 8;    ///< an update is multiplied by scaling()
  double dropout = 0;  ///< [0, 1): on an adapter's input, in training
  /// Ends of module names ("q_proj"); each must be found. Empty, with no pattern: PEFT's default
  /// for the model type.
  std::vector<std::string> target_modules;
  /// Instead of names: "all-linear" (every linear layer but lm_head), or a regular expression that
  /// must match a module's whole name.
  std::string target_pattern;
  /// Ends of names of modules to train and save whole, beside the adapters.
  std::vector<std::string> modules_to_save;
  bool use_rslora = false;  ///< alpha / sqrt(r) instead of alpha / r (Kalajdzievski 2023)
  /// The base's linear layers are kept in 4 bits (QLoRA, Dettmers et al. 2023), as NF4.
  bool load_in_4bit = false;
  bool double_quant = false;  ///< and their scales in 8 bits; acts with load_in_4bit
  /// What a user says that products run in: it must be what they run in (dsconfig). "float32",
  /// "bfloat16" or "float16"; empty: nothing is said.
  std::string compute_dtype;

  double scaling() const;
  /// False: what stands for a run that trains parts of a model whole (layout/trained_part.h).
  bool adapts() const { return !target_modules.empty() || !target_pattern.empty(); }
  friend bool operator==(const LoraArgs&, const LoraArgs&) = default;
};

/// Reads {r, alpha, dropout, targetModules, modulesToSave, useRslora, bias} and, with the names of
/// transformers' BitsAndBytesConfig, {loadIn4bit, bnb4bitQuantType, bnb4bitUseDoubleQuant,
/// bnb4bitComputeDtype}. targetModules is a list of names or one string. BadInput, with its path: an
/// unknown field, a value out of range, a setting that is not built (bias other than "none", DoRA,
/// rank patterns, fp4, 8 bits ...).
Result<LoraArgs> lora_args_from_json(const nlohmann::json& object, const std::string& path);
/// Every field, in the form that lora_args_from_json() reads.
nlohmann::json to_json(const LoraArgs& args);

/// What differs, for a message: "r 8 → 16, targetModules [...] → [...]". Empty: nothing.
std::string differences(const LoraArgs& before, const LoraArgs& after);

}  // namespace dsj
