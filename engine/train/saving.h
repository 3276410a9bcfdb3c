// A run's checkpoints and exported model: which one to load, what the run's own state is, and when
// the steps wait for a save.
// Tested by: tests/engine/train/saving_test.cc
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/checkpoint/background_save.h"
#include "engine/checkpoint/search.h"
#include "engine/comm/agree.h"
#include "engine/train/events.h"
#include "engine/train/inputs.h"
#include "engine/train/step.h"
#include "job/plan/snapshot.h"

namespace dsj::train {

/// Where a run stands between two steps.
struct Progress {
  int64_t step = 0;     ///< optimizer steps done, skipped ones included
  int64_t skipped = 0;  ///< of these
};

/// The loss scaler in a checkpoint's run state (key "loss_scaler").
nlohmann::json to_json(const optim::LossScaler::State& state);
optim::LossScaler::State loss_scaler_state(const nlohmann::json& saved);

class Saver {
 public:
  Saver(Files& files, const Inputs& inputs, zero::ModelState& state, Stepper& stepper,
        const Events& events, at::Device device);

  /// Loads the checkpoint that the arguments name, else the newest sound one of the output
  /// directory, else the model's weights. Newer ones that any rank found damaged are told and set
  /// aside. Environment: there are checkpoints, and none is sound; nothing is set aside then. Any
  /// other error: one that may be the newest could not be judged (checkpoint/damage.h).
  /// Collective.
  Result<Progress> load();
  /// From now on a save that steps follow is written behind them, from a copy of `snapshot.bytes`,
  /// if that fits on every rank. If it does not, rank 0 says so, and the steps wait for each save.
  /// Collective.
  void save_behind(const plan::Snapshot& snapshot);
  /// Saves `progress`. `last`: no step follows; then it is published when this returns. Else it may
  /// be written behind the steps. A save in flight is waited for. Collective: all ranks succeed or
  /// all fail.
  Status save(const Progress& progress, bool last);
  /// What a step carries for the save in flight. Call votes() before each step and advance() after
  /// it, with the sums. Error: the save failed, on this rank or on another. All ranks.
  StepVotes votes();
  Status advance(const StepVotes& all);
  /// Waits until the save in flight is published. Collective: all ranks succeed or all fail.
  Status finish();
  /// Writes OUT/model: the model, or with LoRA the adapters in PEFT's layout. Collective.
  Status export_model();

 private:
  /// How reading one checkpoint went, over all ranks.
  enum class Verdict { Sound, Damaged, Failed };

  /// A checkpoint of ours or of DeepSpeed.
  Result<std::unique_ptr<checkpoint::SavedRun>> open_named(const std::string& path);
  Result<Progress> load_named(const std::string& path);
  Result<Progress> load_newest();
  Result<Progress> load_weights();
  /// With LoRA: the frozen parameters. Collective.
  Status load_base();
  /// Has every rank know each problem that one met while it listed the checkpoints. Collective.
  void share_problems(checkpoint::Search& search);
  /// The index of the first checkpoint that all ranks could open, from `index` on. Error: one could
  /// not be judged. Collective.
  Result<int> open_everywhere(checkpoint::Search& search, int index);
  /// Reads the checkpoint into the parameters and states. Collective, one verdict for all ranks.
  Status restore(checkpoint::SavedRun& saved);
  /// `damaged`: this rank found it so.
  Verdict verdict(const Status& restored, bool damaged);
  /// Has every rank know why `index` is passed over: what the lowest rank with a reason says.
  /// Collective.
  void tell(checkpoint::Search& search, int index, const std::optional<Error>& mine);
  /// Rank 0 warns of each checkpoint that was passed over, and sets it aside.
  void set_aside(const checkpoint::Search& search);
  Progress resumed(const checkpoint::SavedRun& saved);
  Status check_lora(const checkpoint::SavedRun& saved) const;
  checkpoint::WriteOptions write_options(const Progress& progress) const;
  checkpoint::Publication publication(const Progress& progress) const;
  /// Writes and publishes while the steps wait. Collective.
  Status save_now(const Progress& progress, bool last);
  /// Rank 0 tells that a checkpoint is published.
  void tell(const report::Checkpoint& saved, const std::vector<std::string>& warnings) const;
  Status tell(const checkpoint::BackgroundSave::Saved& saved) const;
  nlohmann::json run_state(const Progress& progress) const;
  void warn_of_differences(const nlohmann::json& saved) const;
  Status agree(const Status& mine) { return comm::agree(state_.collectives(), device_, mine); }
  /// Whether all ranks give the same number. Collective.
  bool same_everywhere(double number);

  Files& files_;
  const Inputs& in_;
  zero::ModelState& state_;
  Stepper& stepper_;
  const Events& events_;
  const at::Device device_;
  const std::string checkpoints_;
  at::Tensor snapshot_;                                 ///< [elements] float, on the host
  std::unique_ptr<checkpoint::BackgroundSave> behind_;  ///< null: the steps wait for each save
};

}  // namespace dsj::train
