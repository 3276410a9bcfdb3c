// Saves a run's checkpoints and exported model, and decides when the steps wait for it.
// Tested by: tests/engine/train/state/saving_test.cc
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/checkpoint/background_save.h"
#include "engine/checkpoint/confirmed.h"
#include "engine/checkpoint/retention.h"
#include "engine/comm/agree.h"
#include "engine/train/inputs/events.h"
#include "engine/train/state/model_card.h"
#include "engine/train/step/run_state.h"
#include "engine/weights/export.h"
#include "job/plan/snapshot.h"

namespace dsj::train {

class Saver {
 public:
  Saver(Files& files, const Inputs& inputs, zero::ModelState& state, Stepper& stepper,
        const Events& events, at::Device device);

  /// Enables saving in the background: a save before further steps is written while they run, from
  /// a copy of `snapshot.bytes`, if that fits on every rank. If not, rank 0 warns, and the steps
  /// wait for each save. Collective.
  void save_behind(const plan::Snapshot& snapshot);
  /// Saves `progress`. `last`: no step follows, and the checkpoint is published when this returns.
  /// Else it may be written while the steps run. Waits for a save in flight. Collective: all ranks
  /// succeed or all fail.
  Status save(const Progress& progress, bool last);
  /// What a step all-reduces for the save in flight. Call votes() before each step, settle() before
  /// it updates, and advance() after it, with the sums. Error: the save failed on any rank.
  StepVotes votes();
  void settle();
  Status advance(const StepVotes& all);
  /// Waits until the save in flight is published. Collective: all ranks succeed or all fail.
  Status finish();
  /// Call it if the attempt begins with the checkpoint of `step`.
  void begins_with(int64_t step) { confirmed_.saved(step); }
  /// Call it after each step, before advance(): whether its loss and gradient were finite. Older
  /// checkpoints are removed only after a newer one is confirmed (checkpoint/confirmed.h).
  void took(bool finite);
  /// The existing checkpoints, and which of them are known to be good.
  const checkpoint::Confirmed& confirmed() const { return confirmed_; }
  /// Restores parameters and states from this run's checkpoint of `step`. Error: it is damaged or
  /// gone. Collective, one verdict for all ranks.
  Status take_back(int64_t step);
  /// Writes OUT/model: the model, or with LoRA the adapters in PEFT's layout, and a model card. If
  /// all ranks see the directory, each writes some of a model's files; otherwise rank 0 warns and
  /// writes all files. `file_bytes_max`: per file. Collective.
  Status export_model(const CardFigures& figures, int64_t file_bytes_max = weights::kShardBytesMax);
  /// The same to OUT/models/checkpoint-STEP; removes those beyond save_total_limit. Collective.
  Status save_model(const CardFigures& figures);

 private:
  /// Exports to `target`. Returns the model's path, on rank 0. Collective.
  Result<std::string> export_to(const std::string& target, const CardFigures& figures,
                                int64_t file_bytes_max);
  checkpoint::WriteOptions write_options(const Progress& progress) const;
  checkpoint::Publication publication(const Progress& progress) const;
  /// Includes what is copied of the initial model (`rest`).
  std::vector<weights::ExportTensor> exported_tensors(
      std::span<const weights::TensorInfo> rest) const;
  std::optional<layout::TiedPair> tied_pair() const;
  weights::ExportOptions export_options(const std::string& target, int64_t file_bytes_max) const;
  /// Assigns all files to rank 0 if a rank does not see the directory. Collective.
  void deal(weights::ModelExport& model);
  /// Writes and publishes while the steps wait. Collective.
  Status save_now(const Progress& progress, bool last);
  /// Rank 0 reports that a checkpoint is published.
  void tell(const report::Checkpoint& saved, const std::vector<std::string>& warnings) const;
  Status tell(const checkpoint::BackgroundSave::Saved& saved);
  /// Removes what the newest checkpoint's publication kept, once that checkpoint is confirmed.
  void prune_confirmed();
  template <typename T>
  Status agree(const Result<T>& mine) {
    return comm::agree(state_.collectives(), device_, mine);
  }

  Files& files_;
  const Inputs& in_;
  zero::ModelState& state_;
  Stepper& stepper_;
  const Events& events_;
  const at::Device device_;
  const std::string checkpoints_;
  at::Tensor snapshot_;                                 ///< [elements] float, on the host
  std::unique_ptr<checkpoint::BackgroundSave> behind_;  ///< null if the steps wait for each save
  checkpoint::Confirmed confirmed_;
  /// What the last publication keeps until its checkpoint is confirmed.
  std::optional<checkpoint::PruneOptions> to_prune_;
};

}  // namespace dsj::train
