#include "engine/memory/page_heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace dsj::memory {
namespace {

/// Address space is reserved in such segments; it costs nothing until it is written to.
constexpr size_t kSegment = size_t{1} << 30;

size_t grains(size_t size) {
  return (size + PageHeap::kGrain - 1) / PageHeap::kGrain * PageHeap::kGrain;
}

}  // namespace

PageHeap::~PageHeap() {
  for (const auto& [begin, size] : segments_) munmap(begin, size);
}

void* PageHeap::take(size_t size) {
  size = grains(size);
  const std::lock_guard lock(mutex_);
  auto found = std::find_if(free_.begin(), free_.end(),
                            [&](const auto& entry) { return entry.second.size >= size; });
  if (found == free_.end()) {
    size_t mapped = std::max(size, kSegment);
    char* segment = map(mapped);
    if (!segment) segment = map(mapped = size);  // if address space is limited
    if (!segment) throw std::bad_alloc();
    insert(segment, {.size = mapped, .kept = 0});
    found = free_.find(segment);
  }
  const auto [begin, range] = *found;
  erase(found);
  if (range.size > size) {
    const size_t kept = range.kept > size ? range.kept - size : 0;
    insert(begin + size, {.size = range.size - size, .kept = kept});
  }
  return begin;
}

void PageHeap::give(void* block, size_t size) noexcept {
  size = grains(size);
  const std::lock_guard lock(mutex_);
  char* begin = static_cast<char*>(block);
  Range range{.size = size, .kept = size};
  if (const auto next = free_.find(begin + size); next != free_.end()) {
    range.kept += next->second.kept;
    range.size += next->second.size;
    erase(next);
  }
  if (auto before = free_.lower_bound(begin); before != free_.begin()) {
    --before;
    if (before->first + before->second.size == begin) {
      begin = before->first;
      range.kept += before->second.size;
      range.size += before->second.size;
      erase(before);
    }
  }
  insert(begin, range);
  shrink();
}

void PageHeap::set_limit(size_t limit) {
  const std::lock_guard lock(mutex_);
  limit_ = limit;
  shrink();
}

size_t PageHeap::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

/// Null if the address space is exhausted.
char* PageHeap::map(size_t size) {
  size += kGrain;  // so that the first block can be aligned
  void* const begin = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) return nullptr;
  madvise(begin, size, MADV_HUGEPAGE);  // if refused, small pages work too
  segments_.emplace_back(begin, size);
  return reinterpret_cast<char*>(grains(reinterpret_cast<size_t>(begin)));
}

void PageHeap::insert(char* begin, Range range) {
  free_.emplace(begin, range);
  kept_ += range.kept;
}

void PageHeap::erase(Ranges::iterator range) {
  kept_ -= range->second.kept;
  free_.erase(range);
}

/// Returns the highest addresses first, because these are reused last.
void PageHeap::shrink() {
  for (auto at = free_.rbegin(); kept_ > limit_ && at != free_.rend(); ++at) {
    auto& [begin, range] = *at;
    const size_t released = std::min(range.kept, grains(kept_ - limit_));
    if (released == 0) continue;
    range.kept -= released;
    kept_ -= released;
    madvise(begin + range.kept, released, MADV_DONTNEED);
  }
}

}  // namespace dsj::memory
