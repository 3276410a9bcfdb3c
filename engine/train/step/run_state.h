// The run's state in a checkpoint, besides its tensors.
// Tested by: tests/engine/train/step/run_state_test.cc
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/train/inputs/inputs.h"
#include "engine/train/step/best.h"
#include "engine/train/step/step.h"

namespace dsj::train {

/// The progress of a run between two steps.
struct Progress {
  int64_t step = 0;     ///< finished optimizer steps, including skipped ones
  int64_t skipped = 0;  ///< skipped steps among them
  Best best = {};
  /// The step at which the order of the rows began: 0, or where a run resumed with other data.
  int64_t dealt_from = 0;
  /// The evaluation after `step` is pending, because the run was stopped before it.
  bool evaluation_due = false;
};

/// The loss scaler in a checkpoint's run state (key "loss_scaler").
nlohmann::json to_json(const optim::LossScaler::State& state);
optim::LossScaler::State loss_scaler_state(const nlohmann::json& saved);

/// Identifies the run if the user named a start: a checkpoint, or the model's weights although
/// there are checkpoints. Null if the run resumes from the newest checkpoint, whoever saved it.
nlohmann::json begun(const JobFile& job);
/// Whether an attempt of the run `begun` (not null) saved the checkpoint with this run state.
bool saved_by(const nlohmann::json& begun, const nlohmann::json& run_state);

nlohmann::json run_state(const Inputs& in, zero::ModelState& state, const Stepper& stepper,
                         const Progress& progress);
/// BadInput: the rows of this run are not in the order of the run with state `saved`, and the user
/// did not allow that. `path`: the checkpoint's.
Status check_data(const nlohmann::json& saved, const Inputs& in, const std::string& path);
/// The `dealt_from` of a run that resumes from `saved` at `step`.
int64_t dealt_from(const nlohmann::json& saved, const Inputs& in, int64_t step);
/// Warnings about settings that differ between run states `saved` and `now`.
std::vector<std::string> differences(const nlohmann::json& saved, const nlohmann::json& now);

}  // namespace dsj::train
