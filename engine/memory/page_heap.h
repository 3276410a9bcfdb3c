// Address space for large blocks: pages that were freed are split and joined for the next block, of
// whatever size. Real rows give a step's tensors other sizes each time, and a page that comes from
// the kernel is cleared first, which costs more than the arithmetic on it.
// Tested by: tests/engine/memory/page_heap_test.cc
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace dsj::memory {

/// Any thread. Blocks come from the lowest addresses that are free, so the heap stays dense.
class PageHeap {
 public:
  static constexpr size_t kGrain = size_t{64} << 10;  ///< bytes; blocks are multiples of it

  /// `limit`: the most bytes of free pages that are kept.
  explicit PageHeap(size_t limit) : limit_(limit) {}
  ~PageHeap();  ///< no block is in use any more
  PageHeap(const PageHeap&) = delete;
  PageHeap& operator=(const PageHeap&) = delete;

  /// A block of `size` bytes, aligned to kGrain; its content is undefined. Throws std::bad_alloc.
  void* take(size_t size);
  /// Gives back a block of take(size).
  void give(void* block, size_t size) noexcept;

  /// Pages beyond it go back to the kernel now.
  void set_limit(size_t limit);
  size_t kept() const;  ///< bytes of free blocks that may have pages; at most limit

 private:
  /// Free addresses; neighbours are joined.
  struct Range {
    size_t size = 0;
    size_t kept = 0;  ///< bytes at its beginning that may have pages; the rest has none
  };
  using Ranges = std::map<char*, Range>;

  void insert(char* begin, Range range);
  void erase(Ranges::iterator range);
  void shrink();
  char* map(size_t size);

  mutable std::mutex mutex_;
  Ranges free_;
  std::vector<std::pair<void*, size_t>> segments_;
  size_t kept_ = 0, limit_;
};

}  // namespace dsj::memory
