// What all block files share: requests cut into blocks, handed out in order, counted until done;
// and what follows from one system call's result. Torch-free, file-free.
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

/// A piece of a request: what one system call is asked to move. Shrinks as short results come in.
struct Block {
  Ticket ticket = 0;
  bool write = false;
  int64_t offset = 0;
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

enum class Next { Done, Again };

/// `result`: bytes moved, or -errno. Again: call once more for what `block` is now. Errors
/// (Environment) name path, operation, bytes and offset. Pure.
Result<Next> advance(Block& block, int64_t result, const std::string& path);

/// Thread-safe.
class Requests {
 public:
  explicit Requests(int64_t block_size);

  /// Any thread.
  Ticket submit(bool write, int64_t offset, std::byte* data, int64_t bytes);
  Status wait(Ticket ticket);

  // ---- the file's own threads
  /// The next block to move; nullopt: there is none now.
  std::optional<Block> take();
  /// Waits for one; nullopt: closed, and nothing left.
  std::optional<Block> take_or_wait();
  /// A block that take() handed out is done, or has failed.
  void finish(const Block& block, const std::optional<Error>& error);
  /// No more requests will come: take_or_wait() returns when the queue is empty.
  void close();
  bool closed() const;

 private:
  std::optional<Block> take_locked();

  struct State {
    int64_t bytes_left = 0;      ///< not finished; what a block covers counts whole
    std::optional<Error> error;  ///< of the failed block that lies first
    int64_t error_offset = 0;
  };
  const int64_t block_size_;
  mutable std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<Block> queue_;  ///< what is left of each request
  std::map<Ticket, State> states_;
  Ticket last_ = 0;
  bool closed_ = false;
};

}  // namespace dsj::aio
