// Where an attempt begins: with a checkpoint of this run, one that the user named, or the model's
// weights.
// Tested by: tests/engine/train/loading_test.cc
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/comm/agree.h"
#include "engine/train/agreed_search.h"
#include "engine/train/events.h"
#include "engine/train/run_state.h"

namespace dsj::train {

/// Error if a run does not go on from a checkpoint of DeepSpeed's at `path`, whatever is in it.
Status check_goes_on_from_deepspeed(const dsconfig::ResolvedConfig& config,
                                    const std::string& path);

class Loading {
 public:
  Loading(Files& files, const Inputs& inputs, zero::ModelState& state, Stepper& stepper,
          const Events& events, at::Device device);

  /// Loads the newest sound checkpoint of `search`, else the model's weights. Newer ones
  /// that any rank found damaged are told and set aside. Where the arguments name a checkpoint, or
  /// ask for the model's weights, only the run's first attempt begins there: later ones go on from
  /// what the run has saved since. Environment: there are checkpoints, and none is sound; nothing is
  /// set aside then. Any other error: one that may be the newest could not be judged
  /// (checkpoint/damage.h). Collective.
  Result<Progress> load(AgreedSearch& search);

 private:
  /// How reading one checkpoint went, over all ranks.
  enum class Verdict { Sound, Damaged, Failed };

  /// A checkpoint of ours or of DeepSpeed. Collective, but not one verdict.
  Result<std::unique_ptr<checkpoint::SavedRun>> open_named(const std::string& path);
  Result<Progress> load_named(const std::string& path);
  Result<Progress> load_newest(AgreedSearch& search);
  Result<Progress> load_weights();
  /// Where the arguments say. Precondition: they do.
  Result<Progress> begin_anew();
  /// The frozen parameters, if there are any. Collective.
  Status load_base();
  /// Reads the checkpoint into the parameters and states. Collective, one verdict for all ranks.
  Status restore(checkpoint::SavedRun& saved);
  /// `damaged`: this rank found it so.
  Verdict verdict(const Status& restored, bool damaged);
  /// Rank 0 sets the checkpoints aside that were passed over, and tells of them.
  void set_aside(AgreedSearch& search);
  Progress resumed(const checkpoint::SavedRun& saved);
  /// Forgets the best checkpoint if a rank does not find it. Collective.
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
