// The memory watch: who read and wrote each byte that a kernel touches. It is fed by the compiler's
// calls of -fsanitize=thread in the kernels' files, whose run-time library is callbacks.cc. It
// finds races between threads that no barrier orders, and accesses outside of every known buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace dsj::emulated {

/// Global memory that kernels may touch. While one Buffer lives, an access outside of all buffers,
/// of shared memory and of the thread's own stack is a Fault. Filled with NaN.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return data_.get(); }

 private:
  const std::unique_ptr<unsigned char[]> data_;  // of the exact size, for AddressSanitizer
};

/// Where a thread is in the order of barriers. Epochs count all barriers of all blocks.
struct Moment {
  uint32_t epoch = 0;       ///< 0: never
  uint16_t warp_epoch = 0;  ///< barriers of its warp
  uint16_t thread = 0;
};

/// As every Fault calls a thread of a block.
inline std::string thread_name(int number) {
  return "thread " + std::to_string(number);
}

class Watch {
 public:
  /// Accesses before this epoch are ordered before all later ones.
  void begin_launch(uint32_t epoch) { launch_ = epoch; }
  void begin_block(uint32_t epoch) { block_ = epoch; }
  void clear_shared() { shared_.clear(); }
  /// Whether it is new.
  bool add_shared(const void* at, std::size_t bytes);
  bool is_shared(uintptr_t at) const;

  /// What is wrong with an access.
  std::optional<std::string> touch(uintptr_t at, std::size_t bytes, bool write, const Moment& now);

 private:
  struct Cell {
    Moment writer, readers[2];
  };
  struct Page {
    Cell cells[4096];
  };
  struct Range {
    uintptr_t at;
    std::size_t bytes;
  };
  Page& page(uintptr_t number);
  bool ordered(const Moment& before, const Moment& now, bool shared) const;
  std::optional<std::string> touch_byte(Cell& cell, bool write, const Moment& now, bool shared);

  uint32_t launch_ = 0, block_ = 0;
  std::vector<Range> shared_;
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  uintptr_t last_number_ = ~uintptr_t{0};
  Page* last_ = nullptr;
};

/// Called for each access of the running thread; ends the thread's launch where it is wrong.
void touched(uintptr_t at, std::size_t bytes, bool write);

}  // namespace dsj::emulated
