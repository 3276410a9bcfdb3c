// A heap for large blocks: freed pages are split and joined for the next block of any size. Tensors
// of a step have other sizes each time, because rows do, and the kernel clears every new page,
// which costs more than the arithmetic on it.
// Tested by: tests/engine/memory/page_heap_test.cc
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace dsj::memory {

/// Any thread. Blocks are taken from the lowest free addresses, so that the heap stays dense.
class PageHeap {
 public:
  static constexpr size_t kGrain = size_t{64} << 10;  ///< bytes; blocks are multiples of it

  /// `limit`: the maximum bytes of free pages that are kept.
  explicit PageHeap(size_t limit) : limit_(limit) {}
  ~PageHeap();  ///< no block may be in use
  PageHeap(const PageHeap&) = delete;
  PageHeap& operator=(const PageHeap&) = delete;

  /// A block of `size` bytes, aligned to kGrain; its content is undefined. Throws std::bad_alloc.
  void* take(size_t size);
  /// Frees a block of take(size).
  void give(void* block, size_t size) noexcept;

  /// Returns pages beyond the limit to the kernel at once.
  void set_limit(size_t limit);
  size_t kept() const;  ///< bytes of free blocks that may have pages; at most limit

 private:
  /// A free address range; adjacent ranges are joined.
  struct Range {
    size_t size = 0;
    size_t kept = 0;  ///< bytes at its beginning that may have pages
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
