// The lanes of a device: queues whose work runs in order, and in parallel with other lanes. The
// engine uses streams and events only through this port, so that a simulated device can run the
// work late and find missing synchronization (tests/engine/simulated/late.h).
//
// - Work is queued on the calling thread's current lane: Compute, unless a WithLane exists.
// - Memory belongs to the lane that was current at its allocation. Freed memory may be reused at
//   once by later work of that lane. If another lane uses it, the owning lane must be held (hold)
//   until that use is done, before the memory is freed.
// - A CPU does everything at once: its marks are reached when they are made.
//
// Torch-free. Any thread may call any method; current() and enter() are about the calling thread.
// Tested by: tests/engine/device/streams_test.cc, tests/engine/simulated/late_test.cc
#pragma once

#include <cstdint>
#include <memory>

#include "engine/kernels/port.h"

namespace dsj::device {

enum class Lane : uint8_t {
  Compute,  ///< models and optimizers; most memory is allocated here
  Gather,   ///< gathers of parameters
  Reduce,   ///< reductions of gradients, and all other collectives
  Copy,     ///< copies of offloaded state, in both directions
};
inline constexpr int kLaneCount = 4;
/// "compute", "gather", "reduce", "copy".
const char* name_of(Lane lane);

/// A point in a lane: reached when everything queued there before record() is done.
class Mark {
 public:
  virtual ~Mark() = default;
};
using MarkPtr = std::shared_ptr<const Mark>;

class Streams {
 public:
  virtual ~Streams() = default;
  /// The stream in the form that kernels and libraries take.
  virtual kernels::Stream native(Lane lane) = 0;
  virtual Lane current() const = 0;
  virtual void enter(Lane lane) = 0;
  /// `timed`: for ms_between().
  virtual MarkPtr record(Lane lane, bool timed = false) = 0;
  /// Makes work queued on `lane` from now on wait for the mark. Does not block the host.
  virtual void hold(Lane lane, const Mark& mark) = 0;
  /// Blocks the host until the mark is reached.
  virtual void wait(const Mark& mark) = 0;
  /// Never waits.
  virtual bool reached(const Mark& mark) const = 0;
  /// Milliseconds between two timed marks that are reached.
  virtual double ms_between(const Mark& from, const Mark& to) const = 0;
  /// Blocks the host until all lanes are idle.
  virtual void drain() = 0;
};

/// While it lives, the calling thread queues on `lane`.
class WithLane {
 public:
  WithLane(Streams& streams, Lane lane) : streams_(streams), before_(streams.current()) {
    streams_.enter(lane);
  }
  ~WithLane() { streams_.enter(before_); }
  WithLane(const WithLane&) = delete;
  WithLane& operator=(const WithLane&) = delete;

 private:
  Streams& streams_;
  const Lane before_;
};

}  // namespace dsj::device
