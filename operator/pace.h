// How fast one job is worked on. The simulation has the same pace.
// Tested by: tests/operator/simulation_test.cc
#pragma once

#include <algorithm>

#include "operator/times.h"

namespace dsj::op {

/// Objects of one job that are created at a time.
inline constexpr int kCreatesAtOnce = 16;
/// Between two passes over one job.
inline constexpr Milliseconds kRest{100};
/// Between a setback of a gang and the next try: a minute, doubled with each to half an hour.
constexpr Seconds pause_after(int setbacks) {
  return std::min(Seconds{1800}, Seconds{60} * (1 << std::min(setbacks, 8)));
}

}  // namespace dsj::op
