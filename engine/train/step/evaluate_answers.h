// Evaluates an objective that judges whole answers, forward only, divided among the ranks as in
// evaluate.h.
//
// As in TRL's trainers, eval_loss is the mean of the loss over all pairs or marked answers. A
// metric is the mean over the rounds of its mean over the batches that the ranks run in parallel.
// kto's KL term is that of these batches.
// Tested by: tests/engine/train/preference_test.cc
#pragma once

#include "engine/data/batches/batch.h"
#include "engine/train/step/evaluate.h"

namespace dsj::train {

/// The answers of a batch of pairs or marked rows; empty for other batches.
Answers answers_of(const data::Batch& batch);

/// As evaluate(). Collective.
Result<EvalResult> evaluate_answers(Stepper& stepper, comm::Collectives& collectives,
                                    const EvalRows& rows, int64_t batch_size, at::Device device,
                                    const std::function<bool()>& stop);

/// For each row of `dataset`, the log-probabilities of its answers under the current weights: the
/// same on all ranks. nullopt: a rank was asked to stop. Error: a row cannot be read. Collective.
Result<std::optional<ReferenceLogps>> reference_logps(Stepper& stepper,
                                                      comm::Collectives& collectives,
                                                      const data::Dataset& dataset,
                                                      int64_t batch_size, at::Device device,
                                                      const std::function<bool()>& stop);

/// Sums each number over the ranks. Collective.
void sum_over_ranks(comm::Collectives& collectives, at::Device device, ReferenceLogps& logps);

}  // namespace dsj::train
