// Runs without adapters that train a part of the model only: which parameters stay frozen.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "job/layout/lora.h"
#include "job/training_args.h"

namespace dsj::layout {

/// The names that training.trainableParameters and training.trainableLayers leave out, in the order
/// of units; none if neither is given. A parameter of a layer is trained if its layer is among those of
/// trainableLayers (unset: all) and its name matches trainableParameters from the start (unset: it
/// does); one of no layer only if its name matches. Names are those of the files and those of
/// transformers. BadInput, where = the field: a pattern that does not compile or matches nothing, no
/// layer, a part of a module, a reward model's new score.
Result<std::vector<std::string>> frozen_parameters(const ModelConfig& model,
                                                   const TrainingArgs& training);

/// What is left to train, as units_of() takes it: no adapters, and every module that has none of
/// `frozen`. BadInput, without a place: a module has a part of them, nothing is left, or the model has
/// no such parameter.
Result<LoraArgs> all_but(const ModelConfig& model, const std::vector<std::string>& frozen);

}  // namespace dsj::layout
