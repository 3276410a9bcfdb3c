// The block file port: a preallocated file of fixed size, read and written asynchronously in
// aligned ranges. Stores offloaded state.
//
// Called by: engine/zero (optimizer state and parameters on NVMe), bench/nvme_step.
// Implementations: UringFile (io_uring), ThreadedFile over a RawFile (O_DIRECT, or through the page
// cache, or in memory with faults for tests). open.h picks one at run time and reports why.
// Not supported: growing files, durability (offloaded state is scratch; checkpoints are durable).
//
// Threads: any thread may call any method. Overlapping requests that are in flight together have no
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>

#include "common/result.h"

namespace dsj::aio {

/// The system's message for an errno.
inline std::string errno_text(int number) {
  return std::generic_category().message(number);
}

/// Offset, length and address of every request are multiples of these bytes, as O_DIRECT requires.
inline constexpr int64_t kAlign = 4096;

/// ds_config's section `aio`, with DeepSpeed 0.19's defaults.
struct Options {
  int64_t block_size = 1 << 20;  ///< bytes; a request is split into pieces of this size
  int queue_depth = 8;           ///< pieces in flight, per thread of thread_count
  int thread_count = 1;          ///< intra_op_parallelism
  bool single_submit = false;    ///< io_uring: one system call per piece, not per batch
  bool overlap_events = true;    ///< false: a batch waits for all of the previous one
};

/// Counts of a file's operations so far.
struct Counters {
  int64_t blocks = 0;       ///< pieces submitted; again after a short result
  int64_t submissions = 0;  ///< system calls that submitted them
  int64_t mixed = 0;        ///< submissions while earlier pieces were in flight
};

/// Identifies a request until its wait().
using Ticket = int64_t;

class BlockFile {
 public:
  virtual ~BlockFile() = default;  ///< waits for requests in flight

  /// Starts a request. Do not touch the memory until wait(). Never blocks on the device.
  virtual Ticket read(int64_t offset, std::span<std::byte> out) = 0;
  virtual Ticket write(int64_t offset, std::span<const std::byte> bytes) = 0;
  /// Waits until the request is done. Call it once per ticket. Environment: names path, operation,
  /// bytes, offset and the system's reason; the rest of the request was still attempted.
  virtual Status wait(Ticket ticket) = 0;

  virtual Counters counters() const = 0;
  virtual const std::string& path() const = 0;
  virtual int64_t size() const = 0;                ///< bytes
  virtual const char* implementation() const = 0;  ///< "io_uring", "O_DIRECT threads", "threads"
};

}  // namespace dsj::aio
