// The copy of a rank's states from which a checkpoint is written while training continues, and
// whether it fits. If it does not fit, training waits while a checkpoint is written. `dsj plan` and
// every rank use it (engine/train/state/saving.h). Pure.
#pragma once

#include <cstdint>

#include "job/layout/partition.h"
#include "job/plan/fit.h"

namespace dsj::plan {

struct Snapshot {
  int64_t bytes = 0;  ///< of one rank, in host memory; 0 if only the last step saves
  bool fits = true;   ///< besides everything else that the ranks of a host use
};

Snapshot plan_snapshot(const FitInput& input, const Limits& limits);

}  // namespace dsj::plan
