#include "engine/device/host_pages.h"

#include <ATen/ATen.h>

#include <array>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "engine/memory/counting_allocator.h"

namespace dsj::device {
namespace {

/// Locking pages stalls a device. So small blocks, which every step needs, are kept for reuse by
/// requests of the same size.
constexpr size_t kSmall = size_t{1} << 20, kKeptPerSize = 4;

std::array<HostPages, kDeviceKinds>& all_pages() {
  static std::array<HostPages, kDeviceKinds> pages;
  return pages;
}

class Blocks {
 public:
  void* take(const HostPages& pages, size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      auto& kept = kept_[{pages.take, bytes}];
      if (!kept.empty()) {
        void* const block = kept.back();
        kept.pop_back();
        return block;
      }
    }
    void* const block = pages.take(bytes);
    if (block == nullptr) throw std::bad_alloc();
    return block;
  }
  void give(const HostPages& pages, void* block, size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      auto& kept = kept_[{pages.take, bytes}];
      if (bytes <= kSmall && kept.size() < kKeptPerSize) return kept.push_back(block);
    }
    pages.give(block);
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<void* (*)(size_t), size_t>, std::vector<void*>> kept_;
};

Blocks& blocks() {
  static auto* instance = new Blocks;  // outlives every tensor with static storage
  return *instance;
}

}  // namespace

void provide_pages(at::DeviceType kind, HostPages pages) {
  all_pages()[static_cast<size_t>(kind)] = pages;
}

at::Tensor host_memory(at::IntArrayRef sizes, at::ScalarType type, at::Device place) {
  const HostPages pages = all_pages()[static_cast<size_t>(place.type())];
  const auto bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  if (pages.take == nullptr || bytes == 0) return at::empty(sizes, type);
  void* const block = blocks().take(pages, bytes);
  memory::Ledger& ledger = memory::current_ledger();
  const memory::Class klass = memory::current_class();
  ledger.add(klass, static_cast<int64_t>(bytes));
  const auto give = [pages, bytes, klass, &ledger](void* memory) {
    ledger.add(klass, -static_cast<int64_t>(bytes));
    blocks().give(pages, memory, bytes);
  };
  return at::from_blob(block, sizes, give, at::TensorOptions(type));
}

}  // namespace dsj::device
