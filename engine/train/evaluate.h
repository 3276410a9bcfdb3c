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

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "common/result.h"
#include "engine/train/inputs.h"
#include "engine/train/step.h"

namespace dsj::train {

struct EvalResult {
  std::optional<double> loss;     ///< nullopt: no row has a target, or it was stopped
  int64_t rows = 0, targets = 0;  ///< of all ranks
  int64_t rows_without_target = 0;
  std::map<std::string, double> metrics = {};  ///< of an objective (evaluate_answers.h)
  bool stopped = false;                        ///< a rank was asked to stop: the rest was left out
};

/// `stop`: whether this rank was asked to stop; all ranks then stop before the next batch. It may be
/// empty, on all ranks. Collective; the result is the same on all ranks. Training state does not
/// change. Error: a row cannot be read.
Result<EvalResult> evaluate(Stepper& stepper, comm::Collectives& collectives, const EvalRows& rows,
                            int64_t batch_size, at::Device device,
                            const std::function<bool()>& stop = {});

}  // namespace dsj::train
