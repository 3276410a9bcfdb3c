// Collectives of a device: operations are queued on its lanes, and the host goes on. This is all but
// the operations themselves, which a library brings (nccl.h): order, memory, timeouts, the first
// failure.
// Tested by: tests/engine/comm/streamed_test.cc, tests/engine/simulated/step_test.cc
#pragma once

#include <memory>

#include "engine/comm/collectives.h"
#include "engine/comm/transport.h"
#include "engine/device/streams.h"

namespace dsj::comm {

/// What a device's library does. One call at a time.
class StreamTransport {
 public:
  virtual ~StreamTransport() = default;
  virtual std::string_view name() const = 0;
  /// Queues the operation on `lane`. Returns when the library has accepted it. Operations of one
  /// lane run in their order; those of two lanes may run side by side. Throws TransportError,
  /// DeviceMemoryError or TransportTimeout.
  virtual void launch(const Request& request, device::Lane lane, Clock::time_point deadline) = 0;
  /// Throws TransportError or DeviceMemoryError if an operation in flight has failed.
  virtual void check() = 0;
  /// Ends what is in flight, so that lanes which wait for it go on. Its memory then holds anything.
  /// Idempotent.
  virtual void abort() = 0;
  /// Closes in good order, when nothing is in flight.
  virtual void finish(Clock::time_point deadline) = 0;
};

/// The lane of an operation: gathers have one of their own, so that the next layer's parameters
/// come while gradients are being reduced.
constexpr device::Lane lane_of(Kind kind) {
  return kind == Kind::AllGather ? device::Lane::Gather : device::Lane::Reduce;
}

/// An operation begins when what the issuing thread's lane holds by then is done. Its tensors' memory
/// must belong to the lane that calls wait(): from then on they are kept by the caller alone, and
/// freed when the caller frees them. Work that is dropped without wait() keeps them until it is done.
/// `timeout`: per operation, from when it is the oldest of its lane.
std::unique_ptr<Collectives> make_streamed(std::unique_ptr<StreamTransport> transport, int rank,
                                           int world, at::Device device,
                                           std::chrono::milliseconds timeout);

}  // namespace dsj::comm
