// The log-probabilities of the answers under the model that the run starts from: the reference of
// dpo and kto. One pass over the rows computes them before the first step, as TRL's
// precompute_ref_log_probs. They are saved in the output directory, and later attempts need neither
// the pass nor the old weights.
// Tested by: tests/engine/train/preference_test.cc
#pragma once

#include <functional>
#include <optional>

#include "common/files/files.h"
#include "engine/train/inputs/events.h"
#include "engine/train/step/evaluate_answers.h"

namespace dsj::train {

struct References {
  ReferenceLogps train;  ///< of Inputs::dataset, including held-out rows
  ReferenceLogps eval;   ///< of Inputs::eval_dataset
};

/// Reads the references from the output directory if they match the rows, tokens and model.
/// Otherwise loads the model's weights into `state`, computes them, and writes them there. Call it
/// before Loading::load(). nullopt: a rank was asked to stop; nothing is written. Error: the
/// weights or a row cannot be read, or the file cannot be written. Collective.
Result<std::optional<References>> find_references(Files& files, const Inputs& in,
                                                  zero::ModelState& state, Stepper& stepper,
                                                  const Events& events, at::Device device,
                                                  const std::function<bool()>& stop);

}  // namespace dsj::train
