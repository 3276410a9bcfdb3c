// The loss of a data set, forward only, shared out over the ranks. Rows lie in batches of
// per_device_eval_batch_size, in the file's order; batch number i is rank i mod world's, the last
// one may be short.
//
// eval_loss is Hugging Face's: the mean over rows of their batch's loss, which is the mean over the
// batch's valid targets. (With several ranks Hugging Face fills the last batches up with rows from
// the start and leaves those out of the mean of losses; here a batch is only its own rows.) A batch
// without a valid target counts 0.
#pragma once

#include "common/result.h"
#include "engine/train/inputs.h"
#include "engine/train/step.h"

namespace dsj::train {

struct EvalResult {
  double loss = 0;
  int64_t rows = 0, targets = 0;  ///< of all ranks
};

/// Collective; the same answer on all ranks. What was or comes of training is untouched.
Result<EvalResult> evaluate(Stepper& stepper, comm::Collectives& collectives, const EvalRows& rows,
                            int64_t batch_size, int64_t pad_id, at::Device device);

}  // namespace dsj::train
