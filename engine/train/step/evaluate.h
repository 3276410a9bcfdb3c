// The loss of a data set, forward only, divided among the ranks. Batches have
// per_device_eval_batch_size rows in the file's order; the last one may be shorter. Rank r of W
// runs batches r, r + W, r + 2W ...
//
// eval_loss is Hugging Face's: the mean over rows of their batch's loss, which is the mean over
// targets. With LossNormalization::Token a batch is all that the ranks run in parallel, else one
// rank's. Rows without a target are left out. One difference: with several ranks, Hugging Face
// fills the last batches with rows from the start, which it leaves out of the mean; here batches
// are not filled.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "common/result.h"
#include "engine/train/inputs/inputs.h"
#include "engine/train/step/step.h"

namespace dsj::train {

struct EvalResult {
  std::optional<double> loss;     ///< nullopt if no row has a target, or if stopped
  int64_t rows = 0, targets = 0;  ///< over all ranks
  int64_t rows_without_target = 0;
  std::map<std::string, double> metrics = {};  ///< an objective's (evaluate_answers.h)
  bool stopped = false;                        ///< a rank was asked to stop; rest not evaluated
};

/// `stop`: whether this rank was asked to stop; all ranks then stop before the next batch. Empty on
/// all ranks or on none. Collective; all ranks get the same result. Does not change training state.
/// Error: a row cannot be read.
Result<EvalResult> evaluate(Stepper& stepper, comm::Collectives& collectives, const EvalRows& rows,
                            int64_t batch_size, at::Device device,
                            const std::function<bool()>& stop = {});

}  // namespace dsj::train
