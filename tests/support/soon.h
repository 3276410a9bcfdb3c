// Waiting for an event in a test. The bound is long by intent: a busy machine is slow, and time is
// no assertion.
#pragma once

#include <chrono>
#include <thread>

namespace dsj {

/// Bounds a wait that an event ends.
inline constexpr std::chrono::seconds kLong{120};

/// True as soon as `holds()` is; false when it is not within `bound`.
template <typename Condition>
bool soon(const Condition& holds, std::chrono::seconds bound = kLong) {
  const auto end = std::chrono::steady_clock::now() + bound;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace dsj
