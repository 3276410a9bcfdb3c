// The trainer's callbacks during a step: the boundaries of the schedule's actions and of the parts
// after them. An observer must not change the step. Torch-free. Without an observer there is no
// virtual call.
#pragma once

#include "job/layout/schedule.h"

namespace dsj::observe {

/// The parts of a step besides the schedule's actions.
enum class StepPart {
  FinishReductions,  ///< waits for the reductions in flight
  Update,            ///< norm over all ranks, clip, optimizer
};

/// Called on the training thread, in schedule order. Each before() is followed by its after(); they
/// do not nest. On CUDA the work between them has been queued, but may not be done.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void before(const layout::Action& action) = 0;
  virtual void after(const layout::Action& action) = 0;
  virtual void before(StepPart part) = 0;
  virtual void after(StepPart part) = 0;
};

}  // namespace dsj::observe
