// The model that a run trains, by its objective.
// Tested by: tests/job/layout/reward_model_test.cc
#pragma once

#include <string>

#include "common/result.h"
#include "job/layout/model_shape.h"

namespace dsj::layout {

/// read_model_config() for a run. If `reward` (objective reward): a reward model, whose score the
/// files may lack. Errors: BadInput for a reward model with another objective.
Result<ModelConfig> read_trained_model(const std::string& directory, bool reward);

}  // namespace dsj::layout
