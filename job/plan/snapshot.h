// The copy of a rank's states from which a checkpoint is written behind the steps, and whether it
// fits. Where it does not, the steps wait while a checkpoint is written. Decided for `dsj plan`
// and for every rank (engine/train/saving.h). Pure.
#pragma once

#include <cstdint>

#include "job/layout/partition.h"
#include "job/plan/fit.h"

namespace dsj::plan {

struct Snapshot {
  int64_t bytes = 0;  ///< of one rank, in host memory; 0: no save is due before the last step
  bool fits = true;   ///< beside everything else that the ranks of a host take
};

Snapshot plan_snapshot(const FitInput& input, const Limits& limits);

}  // namespace dsj::plan
