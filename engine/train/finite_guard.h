// Numbers that are not finite: when they end a run, and what is kept from them. A run that went
// wrong says so, leaves the last sound checkpoint, and exports no model that cannot answer.
// Tested by: tests/run/not_finite_run_test.cc, tests/engine/train/finite_guard_test.cc
#pragma once

#include <cstdint>
#include <string>

#include "engine/train/events.h"
#include "engine/train/run_state.h"
#include "engine/train/step.h"
#include "job/training_args.h"

namespace dsj::train {

class FiniteGuard {
 public:
  /// All references must outlive it.
  FiniteGuard(const TrainingArgs& args, const dsconfig::ResolvedConfig& config,
              zero::ModelState& state, const Events& events);

  /// Before the first step of an attempt: rank 0 warns of weights that are not finite, frozen ones (a
  /// base under adapters) included, which are looked at here alone. Collective.
  void begin();
  /// After each step.
  void took(const StepResult& result);
  /// Why the run ends with step `step`; empty: it goes on. It ends after training.maxSkippedSteps
  /// steps in a row whose loss or gradient is not finite, skipped or not. With a loss scale it is
  /// as in DeepSpeed: a dynamic one ends it at its smallest (StepResult::scale_exhausted), a fixed
  /// one goes on unless the argument is given. The same on all ranks.
  std::string gives_up(int64_t step) const;
  /// Whether a checkpoint may be saved: an older one, which is sound, may be removed for it. False:
  /// weights are not finite, and rank 0 has warned. Weights that were not finite before the first
  /// step and are trained with a finite loss all the same (rows of the embedding that no token
  /// uses) are saved. Collective.
  bool may_save(int64_t step);
  /// Once, after the last step, before the model is replaced by a better one: whether the weights give
  /// a finite loss on rows of that step. True where they did not before it, either.
  void tried(bool finite) { broken_by_last_step_ = !finite && bad_steps_ == 0; }
  /// The weights are those of an earlier checkpoint now.
  void replaced() { broken_by_last_step_ = false; }
  /// Why the model is not exported; empty: it is. Its weights are not finite, or its last step broke
  /// it. training.exportNotFinite exports it with a warning. Collective.
  std::string keeps_back();

 private:
  void warn(const std::string& text) const;
  const bool exports_all_;
  const int64_t most_bad_steps_;  ///< 0: any number
  zero::ModelState& state_;
  const Events& events_;
  bool began_finite_ = true;
  int64_t bad_steps_ = 0;  ///< in a row, up to the last step
  std::string cause_;      ///< of the last of them
  bool broken_by_last_step_ = false;
};

}  // namespace dsj::train
