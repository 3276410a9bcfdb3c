// Rate limits for one job. The simulation uses the same values.
// Tested by: tests/operator/simulation_test.cc
#pragma once

#include <algorithm>

#include "operator/observe/times.h"

namespace dsj::op {

/// Objects of one job that are created at a time.
inline constexpr int kCreatesAtOnce = 16;
/// Minimum time between two passes over one job.
inline constexpr Milliseconds kRest{100};
/// Pause between a setback of a gang and the next try: one minute, doubled with each setback up to
/// half an hour.
constexpr Seconds pause_after(int setbacks) {
  return std::min(Seconds{1800}, Seconds{60} * (1 << std::min(setbacks, 8)));
}

/// Pause before the pods of a restart that is not charged: none after the first restart of a
/// series, then one second, doubled with each up to five minutes.
constexpr Seconds pause_uncharged(int64_t before) {
  if (before <= 0) return Seconds{0};
  return std::min(Seconds{300}, Seconds{1} * (int64_t{1} << std::min<int64_t>(before - 1, 10)));
}
/// A series ends after this time without a restart.
inline constexpr Seconds kRowOver{600};

}  // namespace dsj::op
