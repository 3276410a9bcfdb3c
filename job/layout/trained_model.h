// The model that a run trains, by its arguments.
// Tested by: tests/job/layout/trained_model_test.cc
#pragma once

#include <string>

#include "common/result.h"
#include "job/layout/shape/model_shape.h"
#include "job/training_args.h"

namespace dsj::layout {

/// read_model_config() for a run. With objective reward: a reward model, whose score the files may
/// lack. routerAuxLossCoef replaces what config.json says about the experts' auxiliary loss; 0: none.
/// Errors: BadInput at "routerAuxLossCoef" for a model without that loss; for a reward model with
/// another objective.
Result<ModelConfig> read_trained_model(const std::string& directory, const TrainingArgs& training);

}  // namespace dsj::layout
