#include "engine/memory/counting_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <new>

namespace dsj::memory {
namespace {

/// What malloc() keeps at the end of its heap, at least. glibc keeps twice the largest map that was
/// freed, by itself often 2 MiB. A step frees and asks for blocks of a megabyte some dozen times,
/// and each time their pages would come back one by one, cleared.
constexpr size_t kHeapKept = size_t{32} << 20;

/// mallopt() would fix both of glibc's bounds for ever: larger maps still raise them.
void keep_freed_heap() {
  void* volatile map = std::malloc(kHeapKept / 2);
  std::free(map);
}

constexpr size_t kAlignment = 64, kLarge = size_t{1} << 20, kHugePage = size_t{2} << 20;

struct Tag {
  Class klass = Class::Activations;
  Ledger* ledger = &process_ledger();
};
thread_local Tag tag;

/// Sixteen sizes per doubling: at most a sixteenth of a block is unused, and lengths that differ a
/// little share blocks.
size_t size_class(size_t bytes) {
  if (bytes < kLarge) return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  size_t step = kLarge / 16;
  while (step * 32 <= bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

/// Freed large blocks, oldest out first. A request takes the smallest cached block that is at most
/// half too large, so that batches of other lengths share blocks instead of adding their own.
class BlockCache {
 public:
  /// `size` becomes the block's real size.
  void* take(size_t& size) {
    if (size >= kLarge) {
      std::lock_guard lock(mutex_);
      if (const auto it = by_size_.lower_bound(size);
          it != by_size_.end() && it->first <= size + size / 2) {
        void* block = it->second->data;
        size = it->first;
        forget(it);
        return block;
      }
    }
    const size_t alignment = size >= kHugePage ? kHugePage : kAlignment;
    void* block = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    if (!block) throw std::bad_alloc();
    if (size >= kHugePage) madvise(block, size, MADV_HUGEPAGE);
    return block;
  }

  void give(void* block, size_t size) {
    if (size < kLarge) return std::free(block);
    std::lock_guard lock(mutex_);
    ages_.push_back({block, size});
    by_size_.emplace(size, std::prev(ages_.end()));
    cached_ += size;
    shrink();
  }

  void set_limit(size_t limit) {
    std::lock_guard lock(mutex_);
    limit_ = limit;
    shrink();
  }

 private:
  struct Cached {
    void* data;
    size_t size;
  };
  using BySize = std::multimap<size_t, std::list<Cached>::iterator>;

  void forget(BySize::iterator it) {
    cached_ -= it->first;
    ages_.erase(it->second);
    by_size_.erase(it);
  }

  void shrink() {
    while (cached_ > limit_) {
      const auto oldest = ages_.begin();
      auto it = by_size_.lower_bound(oldest->size);
      while (it->second != oldest) ++it;
      std::free(oldest->data);
      forget(it);
    }
  }

  std::mutex mutex_;
  std::list<Cached> ages_;
  BySize by_size_;
  size_t cached_ = 0, limit_ = size_t{256} << 20;
};

BlockCache& cache() {
  static auto* instance = new BlockCache;  // outlives every tensor with static storage
  return *instance;
}

/// Precedes every tensor's data, so that a bare data pointer can be freed, as oneDNN asks.
struct alignas(kAlignment) Header {
  size_t size;  ///< of the whole block
  int64_t bytes;
  Class klass;
  Ledger* ledger;
};

void release(void* data) {
  if (!data) return;
  auto* header = static_cast<Header*>(data) - 1;
  header->ledger->add(header->klass, -header->bytes);
  cache().give(header, header->size);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    size_t size = size_class(bytes + sizeof(Header));
    void* block = cache().take(size);
    auto* header = new (block) Header{size, static_cast<int64_t>(bytes), tag.klass, tag.ledger};
    header->ledger->add(header->klass, header->bytes);
    void* data = header + 1;
    return {data, data, &release, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

void raise(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak;
  while (seen < value && !peak.compare_exchange_weak(seen, value)) {
  }
}

}  // namespace

const char* name_of(Class klass) {
  static constexpr const char* kNames[] = {"parameters", "gradients",   "optimizer",
                                           "buckets",    "activations", "host"};
  return kNames[static_cast<int>(klass)];
}

void Ledger::add(Class klass, int64_t bytes) {
  const int index = static_cast<int>(klass);
  raise(peak_[index], live_[index] += bytes);
  raise(total_peak_, total_ += bytes);
}

void Ledger::reset_peaks() {
  for (int i = 0; i < kClassCount; ++i) peak_[i] = live_[i].load();
  total_peak_ = total_.load();
}

Ledger& process_ledger() {
  static auto* instance = new Ledger;
  return *instance;
}

MemoryScope::MemoryScope(Class klass) : MemoryScope(klass, *tag.ledger) {}
MemoryScope::MemoryScope(Class klass, Ledger& ledger) : class_(tag.klass), ledger_(tag.ledger) {
  tag = {klass, &ledger};
}
MemoryScope::~MemoryScope() {
  tag = {class_, ledger_};
}
Ledger& current_ledger() {
  return *tag.ledger;
}
Class current_class() {
  return tag.klass;
}

void install() {
  static CountingAllocator* allocator = [] {
    auto* made = new CountingAllocator;
    c10::SetCPUAllocator(made, /*priority=*/100);
    keep_freed_heap();
    return made;
  }();
  (void)allocator;
}

void set_cache_limit(int64_t bytes) {
  cache().set_limit(static_cast<size_t>(bytes));
}

}  // namespace dsj::memory
