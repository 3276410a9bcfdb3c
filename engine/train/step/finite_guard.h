// Decides when infinity and NaN end a run, and what is saved then: the last sound checkpoint is
// kept, and a broken model is not exported.
// Tested by: tests/run/not_finite_run_test.cc, tests/engine/train/step/finite_guard_test.cc
#pragma once

#include <cstdint>
#include <string>

#include "engine/train/inputs/events.h"
#include "engine/train/step/run_state.h"
#include "engine/train/step/step.h"
#include "job/training_args.h"

namespace dsj::train {

class FiniteGuard {
 public:
  /// All references must outlive it.
  FiniteGuard(const TrainingArgs& args, const dsconfig::ResolvedConfig& config,
              zero::ModelState& state, const Events& events);

  /// Call it before the first step of an attempt. Rank 0 warns of weights that are not finite.
  /// Frozen ones (the base of adapters) are checked only here. Collective.
  void begin();
  /// Call it after each step.
  void took(const StepResult& result);
  /// The reason to end the run after step `step`, or empty. The run ends after
  /// training.maxSkippedSteps steps in a row, skipped or not, with a loss or gradient that is not
  /// finite. With a loss scale, as in DeepSpeed, a dynamic one ends it at its smallest value
  /// (StepResult::scale_exhausted), a fixed one only if the argument is given. The same on all
  /// ranks.
  std::string gives_up(int64_t step) const;
  /// Whether a checkpoint may be saved, which may remove an older, sound one. False if weights are
  /// not finite; rank 0 has then warned. Weights that were not finite before the first step, but
  /// give finite losses (embedding rows that no token uses), may be saved. Collective.
  bool may_save(int64_t step);
  /// Call it once after the last step, before a better model replaces this one: whether the weights
  /// give a finite loss on rows of that step. Ignored if the step itself was not finite.
  void tried(bool finite) { broken_by_last_step_ = !finite && bad_steps_ == 0; }
  /// Call it when the weights were replaced by an earlier checkpoint's.
  void replaced() { broken_by_last_step_ = false; }
  /// The reason not to export the model, or empty: its weights are not finite, or its last step
  /// broke it. With training.exportNotFinite it warns and returns empty. Collective.
  std::string keeps_back();

 private:
  void warn(const std::string& text) const;
  const bool exports_all_;
  const int64_t most_bad_steps_;  ///< 0 means any number
  zero::ModelState& state_;
  const Events& events_;
  bool began_finite_ = true;
  int64_t bad_steps_ = 0;  ///< in a row, up to the last step
  std::string cause_;      ///< of the last of them
  bool broken_by_last_step_ = false;
};

}  // namespace dsj::train
