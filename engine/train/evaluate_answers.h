// An evaluation of an objective that judges whole answers, forward only, shared among the ranks as
// evaluate.h's.
//
// As TRL's trainers: eval_loss is the mean over all pairs, or marked answers, of the loss. A metric is
// first the mean over those that the ranks run side by side, and then the mean of those means. kto's KL
// term is that of the rows side by side.
// Tested by: tests/engine/train/preference_test.cc
#pragma once

#include "engine/data/batches/batch.h"
#include "engine/train/evaluate.h"

namespace dsj::train {

/// The answers of a batch of pairs or marked rows. Empty: it has none.
Answers answers_of(const data::Batch& batch);

/// As evaluate(). Collective.
Result<EvalResult> evaluate_answers(Stepper& stepper, comm::Collectives& collectives,
                                    const EvalRows& rows, int64_t batch_size, at::Device device,
                                    const std::function<bool()>& stop);

/// Of each row of `dataset` the answers' log-probabilities under the weights as they are: the same on all
/// ranks. nullopt: a rank was asked to stop. Error: a row cannot be read. Collective.
Result<std::optional<ReferenceLogps>> reference_logps(Stepper& stepper,
                                                      comm::Collectives& collectives,
                                                      const data::Dataset& dataset,
                                                      int64_t batch_size, at::Device device,
                                                      const std::function<bool()>& stop);

/// Sums each number over the ranks. Collective.
void sum_over_ranks(comm::Collectives& collectives, at::Device device, ReferenceLogps& logps);

}  // namespace dsj::train
