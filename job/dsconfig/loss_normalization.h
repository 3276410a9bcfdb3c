// What a step's loss is the mean of: spec.training.lossNormalization (docs/data.md).
#pragma once

#include <string>

#include "job/training_args.h"

namespace dsj::dsconfig {

enum class LossNormalization {
  Token,      ///< of all targets of the step, whatever rank and micro-step has them
  Rank,       ///< of the ranks' means; a rank's is that of its own targets
  MicroBatch  ///< of the micro-batches' means
};

/// As the arguments say. If they say nothing, Token; MicroBatch where the objective judges whole
/// answers (objective.h). check_arguments() let no other name through
/// (DSJ_CHECK).
LossNormalization loss_normalization(const TrainingArgs& args);
/// "token", "rank" or "micro-batch".
std::string name_of(LossNormalization normalization);

}  // namespace dsj::dsconfig
