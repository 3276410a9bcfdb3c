// Time and randomness as ports. Retries, watches and the lease use them, so a test runs hours in
// milliseconds and is reproducible from a seed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "kube/http.h"

namespace dsj::kube {

using Milliseconds = std::chrono::milliseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  /// This process's monotonic time.
  virtual Milliseconds monotonic() const = 0;
  /// UTC since 1970, for comparison with other machines.
  virtual std::chrono::system_clock::time_point wall() const = 0;
  /// Sleeps. True if cancelled before the time was over.
  virtual bool sleep(Milliseconds time, const Cancel& cancel) = 0;
  /// In [0, 1): jitter for retries.
  virtual double random() = 0;
};

Clock& system_clock();

/// The wait before retry `attempt` (1, 2, ...): doubles from 200 ms to 30 s, multiplied by a factor
/// in [1/2, 1] from `random`; at least what the server asked for.
Milliseconds backoff(int attempt, double random, Milliseconds asked = Milliseconds(0));

}  // namespace dsj::kube
