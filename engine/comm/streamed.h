// Collectives of a device: operations are queued on its lanes, and the host continues. Handles
// order, memory, timeouts and the first failure; a library provides the operations (nccl.h).
//
// Tested by: tests/engine/comm/streamed_test.cc, tests/engine/simulated/step_test.cc
#pragma once

#include <memory>

#include "engine/comm/collectives.h"
#include "engine/comm/transport.h"
#include "engine/device/streams.h"

namespace dsj::comm {

/// The operations of a device's library. One call at a time.
class StreamTransport {
 public:
  virtual ~StreamTransport() = default;
  virtual std::string_view name() const = 0;
  /// Queues the operation on `lane`. Returns when the library has accepted it. Operations of one
  /// lane run in order; those of two lanes may overlap. Throws TransportError, DeviceMemoryError or
  /// TransportTimeout.
  virtual void launch(const Request& request, device::Lane lane, Clock::time_point deadline) = 0;
  /// Throws TransportError or DeviceMemoryError if an operation in flight has failed.
  virtual void check() = 0;
  /// Ends the operations in flight, so that lanes that wait for them continue. Their outputs are
  /// then undefined. Idempotent.
  virtual void abort() = 0;
  /// Orderly close, when nothing is in flight.
  virtual void finish(Clock::time_point deadline) = 0;
};

/// The lane of an operation. Gathers have their own lane, so that the next layer's parameters
/// arrive while gradients are being reduced.
constexpr device::Lane lane_of(Kind kind) {
  return kind == Kind::AllGather ? device::Lane::Gather : device::Lane::Reduce;
}

/// An operation starts after the work that the issuing thread's lane holds at that time. Its
/// tensors' memory must belong to the lane that calls wait(); after wait() only the caller keeps
/// the tensors alive. Work that is destroyed without wait() keeps them until it is done. `timeout`:
/// per operation, from when it is the oldest of its lane.
std::unique_ptr<Collectives> make_streamed(std::unique_ptr<StreamTransport> transport, int rank,
                                           int world, at::Device device,
                                           std::chrono::milliseconds timeout);

}  // namespace dsj::comm
