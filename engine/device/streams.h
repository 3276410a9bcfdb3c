// The lanes of a device: queues whose work runs in order, and beside the work of other lanes. All
// that the engine does with streams and events goes through this port, so that a simulated device
// can run the work late and find what no event orders (tests/engine/simulated/late.h).
//
// - Work is queued on the calling thread's current lane. That is Compute unless a WithLane lives.
// - Memory belongs to the lane that was current when it was made. Freed memory is used again by
//   later work of that lane, at once. So what another lane does with it must be ordered: before the
//   memory is freed, its own lane must have been held (hold) until that work is done.
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
  Compute,  ///< what models and optimizers compute; most memory is made here
  Gather,   ///< parameters on their way to all ranks
  Reduce,   ///< gradients, and all other collectives
  Copy,     ///< offloaded state, to the device and back
};
inline constexpr int kLaneCount = 4;
/// "compute", "gather", "reduce", "copy".
const char* name_of(Lane lane);

/// A point in a lane: reached when everything that was queued there before record() is done.
class Mark {
 public:
  virtual ~Mark() = default;
};
using MarkPtr = std::shared_ptr<const Mark>;

class Streams {
 public:
  virtual ~Streams() = default;
  /// What kernels and libraries take.
  virtual kernels::Stream native(Lane lane) = 0;
  virtual Lane current() const = 0;
  virtual void enter(Lane lane) = 0;
  /// `timed`: for ms_between().
  virtual MarkPtr record(Lane lane, bool timed = false) = 0;
  /// Work queued on `lane` from now on waits for the mark. The host goes on.
  virtual void hold(Lane lane, const Mark& mark) = 0;
  /// The host waits for the mark.
  virtual void wait(const Mark& mark) = 0;
  /// Never waits.
  virtual bool reached(const Mark& mark) const = 0;
  /// Milliseconds between two timed marks that are reached.
  virtual double ms_between(const Mark& from, const Mark& to) const = 0;
  /// The host waits for all lanes.
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
