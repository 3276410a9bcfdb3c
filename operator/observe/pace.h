// How fast one job is worked on. The simulation has the same pace.
// Tested by: tests/operator/simulation_test.cc
#pragma once

#include <algorithm>

#include "operator/observe/times.h"

namespace dsj::op {

/// Objects of one job that are created at a time.
inline constexpr int kCreatesAtOnce = 16;
/// Between two passes over one job.
inline constexpr Milliseconds kRest{100};
/// Between a setback of a gang and the next try: a minute, doubled with each to half an hour.
constexpr Seconds pause_after(int setbacks) {
  return std::min(Seconds{1800}, Seconds{60} * (1 << std::min(setbacks, 8)));
}

/// Before the pods of a restart that nobody is charged for are made: none after the first of a row, then a second,
/// doubled with each to five minutes.
constexpr Seconds pause_uncharged(int64_t before) {
  if (before <= 0) return Seconds{0};
  return std::min(Seconds{300}, Seconds{1} * (int64_t{1} << std::min<int64_t>(before - 1, 10)));
}
/// So long after the last one a row begins anew.
inline constexpr Seconds kRowOver{600};

}  // namespace dsj::op
