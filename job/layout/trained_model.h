// The model that a run trains, by its arguments.
// Tested by: tests/job/layout/trained_model_test.cc
#pragma once

#include <string>

#include "common/result.h"
#include "job/layout/shape/model_shape.h"
#include "job/training_args.h"

namespace dsj::layout {

/// read_model_config() for a run. If `reward` (objective reward): a reward model, whose score the
/// files may lack. Errors: BadInput for a reward model with another objective.
Result<ModelConfig> read_trained_model(const std::string& directory, bool reward);

/// routerAuxLossCoef replaces what config.json says about the experts' auxiliary loss; 0: none.
/// Error: BadInput at "routerAuxLossCoef" for a model without that loss.
Status set_balance(const TrainingArgs& training, ModelConfig& model);

}  // namespace dsj::layout
