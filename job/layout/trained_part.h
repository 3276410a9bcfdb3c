// Runs without adapters that train only a part of the model: which parameters stay frozen.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "job/layout/lora.h"
#include "job/training_args.h"

namespace dsj::layout {

/// The names of parameters that training.trainableParameters and training.trainableLayers leave
/// frozen, in the order of units; empty if neither is given. A parameter of a layer is trained if
/// trainableLayers includes its layer (unset: all) and its name matches trainableParameters from
/// the start (unset: all); another parameter only if its name matches. Names are those of the files
/// and of transformers. Errors: BadInput at the field if a pattern does not compile or matches
/// nothing, or if it selects no layer, a part of a module, or a reward model's new score.
Result<std::vector<std::string>> frozen_parameters(const ModelConfig& model,
                                                   const TrainingArgs& training);

/// What is trained, as units_of() takes it: no adapters, and every module without a name in
/// `frozen`. Errors: BadInput without a path if `frozen` has a part of a module or a name that the
/// model lacks, or if nothing is left.
Result<LoraArgs> all_but(const ModelConfig& model, const std::vector<std::string>& frozen);

}  // namespace dsj::layout
