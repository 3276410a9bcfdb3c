#include "engine/memory/counting_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <cstdlib>
#include <cstring>
#include <new>

#include "engine/memory/page_heap.h"

namespace dsj::memory {
namespace {

/// The minimum that malloc() keeps at the end of its heap. By default glibc keeps twice the largest
/// freed mapping, often 2 MiB. A step frees and allocates megabyte blocks some dozen times, and
/// each time their pages would be faulted in and cleared one by one.
constexpr size_t kHeapKept = size_t{32} << 20;

/// mallopt() would fix both of glibc's thresholds; this way larger mappings still raise them.
void keep_freed_heap() {
  void* volatile map = std::malloc(kHeapKept / 2);
  std::free(map);
}

constexpr size_t kAlignment = 64, kLarge = size_t{1} << 20;

struct Tag {
  Class klass = Class::Activations;
  Ledger* ledger = &process_ledger();
};
thread_local Tag tag;

PageHeap& large_blocks() {
  static auto* instance = new PageHeap(size_t{1} << 30);  // outlives tensors with static storage
  return *instance;
}

void* take(size_t size) {
  if (size >= kLarge) return large_blocks().take(size);
  void* const block =
      std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
  if (!block) throw std::bad_alloc();
  return block;
}

void give(void* block, size_t size) {
  size >= kLarge ? large_blocks().give(block, size) : std::free(block);
}

/// Precedes every tensor's data, so that a bare data pointer can be freed, as oneDNN requires.
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
  give(header, header->size);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    const size_t size = bytes + sizeof(Header);
    void* const block = take(size);
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

void set_kept_limit(int64_t bytes) {
  large_blocks().set_limit(static_cast<size_t>(bytes));
}

}  // namespace dsj::memory
