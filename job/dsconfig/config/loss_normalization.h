// How a step's loss is averaged: spec.training.lossNormalization (docs/data.md).
#pragma once

#include <string>

#include "job/training_args.h"

namespace dsj::dsconfig {

enum class LossNormalization {
  Token,      ///< mean over all targets of the step, on all ranks and in all micro-steps
  Rank,       ///< mean of the ranks' means, each over its own targets
  MicroBatch  ///< mean of the micro-batches' means
};

/// The arguments' choice. Default: Token, or MicroBatch for an objective that judges
/// whole answers (objective.h). check_arguments() has refused other names
/// (DSJ_CHECK).
LossNormalization loss_normalization(const TrainingArgs& args);
/// "token", "rank" or "micro-batch".
std::string name_of(LossNormalization normalization);

}  // namespace dsj::dsconfig
