// The loss of a data set, forward only, shared among the ranks. Batches hold
// per_device_eval_batch_size rows in the file's order; the last may be shorter. Rank r of W runs
// batches r, r + W, r + 2W ...
//
// eval_loss is Hugging Face's: the mean over rows of their batch's loss, which is the mean over
// targets. By token (dsconfig::LossNormalization) that batch is what all ranks run side by side,
// else one rank's. Rows without a target have no part in it. One difference: with several ranks
// Hugging Face fills the last batches up with rows from the start and leaves those out of the mean;
// here a batch has its own rows only.
#pragma once

#include "common/result.h"
#include "engine/train/inputs.h"
#include "engine/train/step.h"

namespace dsj::train {

struct EvalResult {
  double loss = 0;
  int64_t rows = 0, targets = 0;  ///< of all ranks
};

/// Collective; the result is the same on all ranks. Training state does not change. Error: a row
/// cannot be read.
Result<EvalResult> evaluate(Stepper& stepper, comm::Collectives& collectives, const EvalRows& rows,
                            int64_t batch_size, at::Device device);

}  // namespace dsj::train
