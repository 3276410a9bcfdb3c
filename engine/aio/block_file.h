// The block file port: one preallocated file of fixed size, read and written asynchronously in
// aligned ranges. Offloaded state lives in it.
//
// Called by: engine/zero (optimizer state and parameters on NVMe), bench/nvme_step.
// Implementations: UringFile (io_uring), ThreadedFile over a RawFile (O_DIRECT, or through the page
// cache, or in memory with faults for tests). open.h picks one at run time and says why.
// Left out: growing files, durability (offloaded state is scratch; checkpoints hold what lasts).
//
// Threads: requests and waits may come from any thread. Requests that overlap and are in flight
// together have no order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>

#include "common/result.h"

namespace dsj::aio {

/// The system's words for an errno.
inline std::string errno_text(int number) {
  return std::generic_category().message(number);
}

/// Bytes: offset, length and address of every request are multiples of it, as O_DIRECT demands.
inline constexpr int64_t kAlign = 4096;

/// ds_config's section `aio`, with DeepSpeed 0.19's defaults.
struct Options {
  int64_t block_size = 1 << 20;  ///< bytes; a request moves in pieces up to this size
  int queue_depth = 8;           ///< pieces in flight, per thread of thread_count
  int thread_count = 1;          ///< intra_op_parallelism
  bool single_submit = false;    ///< io_uring: one system call per piece, not per batch
  bool overlap_events = true;    ///< false: the next pieces wait for all of the last
};

/// What a file has done so far.
struct Counters {
  int64_t blocks = 0;       ///< pieces given to the system; counted again after a short result
  int64_t submissions = 0;  ///< system calls that started them
  int64_t mixed = 0;        ///< times that pieces started while earlier ones were in flight
};

/// Names a request until its wait().
using Ticket = int64_t;

class BlockFile {
 public:
  virtual ~BlockFile() = default;  ///< waits for requests in flight

  /// Starts a request. The memory belongs to the file until wait(). Never blocks on the device.
  virtual Ticket read(int64_t offset, std::span<std::byte> out) = 0;
  virtual Ticket write(int64_t offset, std::span<const std::byte> bytes) = 0;
  /// Waits until the request is done. Call once per ticket. Environment: names path, operation,
  /// bytes, offset and the system's reason; the rest of the request was still tried.
  virtual Status wait(Ticket ticket) = 0;

  virtual Counters counters() const = 0;
  virtual const std::string& path() const = 0;
  virtual int64_t size() const = 0;                ///< bytes
  virtual const char* implementation() const = 0;  ///< "io_uring", "O_DIRECT threads", "threads"
};

}  // namespace dsj::aio
