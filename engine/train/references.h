// The log-probabilities of a job's answers under the model that the run starts from: what dpo and kto
// compare with. One pass over the rows computes them before the first step, as TRL's precompute_ref_log_probs,
// and the output directory keeps them, so that later attempts need neither the pass nor the old weights.
// Tested by: tests/engine/train/preference_test.cc
#pragma once

#include <functional>
#include <optional>

#include "common/files/files.h"
#include "engine/train/evaluate_answers.h"
#include "engine/train/events.h"

namespace dsj::train {

struct References {
  ReferenceLogps train;  ///< of Inputs::dataset, held-out rows too
  ReferenceLogps eval;   ///< of Inputs::eval_dataset
};

/// Reads them from the output directory if they were computed for these rows, tokens and model;
/// else loads the model's weights into `state`, computes them, and writes them there. Call it before
/// Loading::load(). nullopt: a rank was asked to stop; nothing is written. Error: the weights or a row
/// cannot be read, the file cannot be written. Collective.
Result<std::optional<References>> find_references(Files& files, const Inputs& in,
                                                  zero::ModelState& state, Stepper& stepper,
                                                  const Events& events, at::Device device,
                                                  const std::function<bool()>& stop);

}  // namespace dsj::train
