// Loads the state with which an attempt begins: a checkpoint of this run, one that the user named,
// or the model's weights.
// Tested by: tests/engine/train/state/loading_test.cc
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/comm/agree.h"
#include "engine/train/inputs/events.h"
#include "engine/train/state/agreed_search.h"
#include "engine/train/step/run_state.h"

namespace dsj::train {

/// Error if a run cannot resume from a DeepSpeed checkpoint at `path`, whatever it contains.
Status check_goes_on_from_deepspeed(const dsconfig::ResolvedConfig& config,
                                    const std::string& path);

class Loading {
 public:
  Loading(Files& files, const Inputs& inputs, zero::ModelState& state, Stepper& stepper,
          const Events& events, at::Device device);

  /// Loads the newest sound checkpoint of `search`, else the model's weights. Warns of newer ones
  /// that any rank found damaged, and renames them. If the arguments name a checkpoint, or ask for
  /// the model's weights, only the run's first attempt begins there; later ones resume from what
  /// the run has saved since. Environment: there are checkpoints, but none is sound; then none is
  /// renamed. Other errors: the newest could not be judged (checkpoint/damage.h). Collective.
  Result<Progress> load(AgreedSearch& search);

 private:
  /// The result of reading one checkpoint, over all ranks.
  enum class Verdict { Sound, Damaged, Failed };

  /// Opens a checkpoint of ours or of DeepSpeed. Collective, but verdicts may differ between ranks.
  Result<std::unique_ptr<checkpoint::SavedRun>> open_named(const std::string& path);
  Result<Progress> load_named(const std::string& path);
  Result<Progress> load_newest(AgreedSearch& search);
  Result<Progress> load_weights();
  /// Begins where the arguments say. Precondition: they name a start.
  Result<Progress> begin_anew();
  /// Loads the frozen parameters, if there are any. Collective.
  Status load_base();
  /// Reads the checkpoint into the parameters and states. Collective, one verdict for all ranks.
  Status restore(checkpoint::SavedRun& saved);
  /// `damaged`: whether this rank found the checkpoint damaged.
  Verdict verdict(const Status& restored, bool damaged);
  /// Rank 0 renames the skipped checkpoints and warns of them.
  void set_aside(AgreedSearch& search);
  Progress resumed(const checkpoint::SavedRun& saved);
  /// Forgets the best checkpoint if any rank does not find it. Collective.
  void drop_lost_best(Best& best);
  Status check_lora(const checkpoint::SavedRun& saved) const;
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
};

}  // namespace dsj::train
