// The shared part of all block files: requests are split into blocks, handed out in order, and
// counted until done; and the handling of a system call's result. Torch-free; accesses no file.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "common/result.h"
#include "engine/aio/block_file.h"

namespace dsj::aio {

/// A piece of a request, moved by one system call. A short result shrinks it.
struct Block {
  Ticket ticket = 0;
  bool write = false;
  int64_t offset = 0;
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

enum class Next { Done, Again };

/// `result`: bytes moved, or -errno. Returns Again if the rest in `block` must be submitted.
/// Environment: names path, operation, bytes and offset. Pure.
Result<Next> advance(Block& block, int64_t result, const std::string& path);

/// Thread-safe.
class Requests {
 public:
  explicit Requests(int64_t block_size);

  /// Any thread.
  Ticket submit(bool write, int64_t offset, std::byte* data, int64_t bytes);
  Status wait(Ticket ticket);

  // ---- the file's own threads
  /// The next block to move; nullopt if there is none now.
  std::optional<Block> take();
  /// Waits for the next block; nullopt if closed and empty.
  std::optional<Block> take_or_wait();
  /// Call it when a block of take() is done or has failed.
  void finish(const Block& block, const std::optional<Error>& error);
  /// No more requests follow: take_or_wait() returns once the queue is empty.
  void close();
  bool closed() const;

 private:
  std::optional<Block> take_locked();

  struct State {
    int64_t bytes_left = 0;      ///< bytes of unfinished blocks
    std::optional<Error> error;  ///< of the first failed block
    int64_t error_offset = 0;
  };
  const int64_t block_size_;
  mutable std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<Block> queue_;  ///< the rest of each request
  std::map<Ticket, State> states_;
  Ticket last_ = 0;
  bool closed_ = false;
};

}  // namespace dsj::aio
