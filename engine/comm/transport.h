// The interface of a CPU backend: runs one operation at a time, blocking, on a caller's thread.
// queued.h makes Collectives of it. Internal to comm.
#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/collectives.h"

namespace dsj::comm {

using Clock = std::chrono::steady_clock;

/// Why an operation could not finish: "rank 0 closed the connection". Queued adds rank, collective
/// and sequence number.
class TransportError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The deadline has passed. what() names what was awaited: "waiting for rank 0".
class TransportTimeout : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;
  /// Runs the operation to its end. Throws TransportError or TransportTimeout; after a throw only
  /// leave() and the destructor may be called.
  virtual void run(const Request& request, Clock::time_point deadline) = 0;
  /// Makes the current run() and every later one throw soon. Any thread.
  virtual void interrupt() = 0;
  /// Tells the peers that this rank runs no more operations, if the backend can. `reason` is empty
  /// at an orderly end. Called once, when no run() is active.
  virtual void leave(const std::string& reason) = 0;
  /// Bytes that this rank has sent on network connections; 0 if the backend does not count. Any
  /// thread.
  virtual std::int64_t sent() const { return 0; }
};

/// "n.n s".
std::string format_seconds(double seconds);
/// The first line of what(), without c10's stack trace.
std::string brief(const std::exception& error);

}  // namespace dsj::comm
