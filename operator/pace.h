// How fast one job is worked on. The simulation has the same pace.
// Tested by: tests/operator/simulation_test.cc
#pragma once

#include "operator/times.h"

namespace dsj::op {

/// Objects of one job that are created at a time.
inline constexpr int kCreatesAtOnce = 16;
/// Between two passes over one job.
inline constexpr Milliseconds kRest{100};

}  // namespace dsj::op
