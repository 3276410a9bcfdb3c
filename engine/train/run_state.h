// What a checkpoint says of the run that saved it, besides its tensors.
// Tested by: tests/engine/train/run_state_test.cc
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/train/best.h"
#include "engine/train/inputs.h"
#include "engine/train/step.h"

namespace dsj::train {

/// Where a run stands between two steps.
struct Progress {
  int64_t step = 0;     ///< optimizer steps done, skipped ones included
  int64_t skipped = 0;  ///< of these
  Best best = {};
  /// The step with which the order of the rows began: 0, or where a run went on beside other data.
  int64_t dealt_from = 0;
  /// The evaluation after `step` is still to be done: a stop left it out.
  bool evaluation_due = false;
};

/// The loss scaler in a checkpoint's run state (key "loss_scaler").
nlohmann::json to_json(const optim::LossScaler::State& state);
optim::LossScaler::State loss_scaler_state(const nlohmann::json& saved);

/// Which run this is, if the user told it where to begin: a named checkpoint, or the model's weights
/// though there are checkpoints. Null: it goes on from the newest checkpoint, whoever saved that.
nlohmann::json begun(const JobFile& job);
/// Whether an attempt of the run `begun` (not null) saved the checkpoint with this run state.
bool saved_by(const nlohmann::json& begun, const nlohmann::json& run_state);

nlohmann::json run_state(const Inputs& in, zero::ModelState& state, const Stepper& stepper,
                         const Progress& progress);
/// BadInput: the rows of a run with the run state `now` are not in the order of the run that `saved`,
/// and the user did not say that this does not matter. `path`: the checkpoint's.
Status check_data(const nlohmann::json& saved, const Inputs& in, const std::string& path);
/// The `dealt_from` of a run that goes on from `saved` at `step`.
int64_t dealt_from(const nlohmann::json& saved, const Inputs& in, int64_t step);
/// What a run with the run state `now` does otherwise than the one that `saved`: warnings.
std::vector<std::string> differences(const nlohmann::json& saved, const nlohmann::json& now);

}  // namespace dsj::train
