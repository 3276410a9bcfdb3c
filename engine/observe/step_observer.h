// What the trainer tells while it walks a step: the boundaries of the schedule's actions and of
// what follows them. An observer changes nothing of a step. Torch-free; no virtual call is made
// when nobody observes.
#pragma once

#include "common/layout/schedule.h"

namespace dsj::observe {

/// What a step does besides the schedule's actions.
enum class StepPart {
  FinishReductions,  ///< waits for the gradients that are still under way
  Update,            ///< norm over all ranks, clip, optimizer
};

/// Called on the training thread, in the order of the walk. Every before() is followed by its
/// after(); they do not nest. On CUDA the work between the two has been issued, not done.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void before(const layout::Action& action) = 0;
  virtual void after(const layout::Action& action) = 0;
  virtual void before(StepPart part) = 0;
  virtual void after(StepPart part) = 0;
};

}  // namespace dsj::observe
