#include "engine/memory/device_memory.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>
#include <mutex>
#include <unordered_map>

namespace dsj::memory {
namespace {

struct Block {
  Class klass;
  Ledger* ledger;
  int64_t bytes;
};

/// The blocks of all threads, because a thread may free another's.
class Blocks {
 public:
  void made(void* at, int64_t bytes) {
    const Block block{current_class(), &current_ledger(), bytes};
    {
      const std::lock_guard lock(mutex_);
      blocks_.insert_or_assign(at, block);
    }
    block.ledger->add(block.klass, bytes);
  }
  void freed(void* at) {
    Block block{};
    {
      const std::lock_guard lock(mutex_);
      const auto found = blocks_.find(at);
      if (found == blocks_.end()) return;  // allocated before counting began
      block = found->second;
      blocks_.erase(found);
    }
    block.ledger->add(block.klass, -block.bytes);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
};

Blocks& blocks() {
  static auto* instance = new Blocks;  // outlives every tensor with static storage
  return *instance;
}

/// Registered with libtorch as a memory profiler.
class Listener final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* at, int64_t bytes, size_t, size_t, c10::Device device) override {
    if (device.is_cpu() || at == nullptr) return;
    bytes > 0 ? blocks().made(at, bytes) : blocks().freed(at);
  }
  bool memoryProfilingEnabled() const override { return true; }
};

constexpr auto kKind = c10::DebugInfoKind::PROFILER_STATE;

}  // namespace

CountDevice::CountDevice() {
  c10::ThreadLocalDebugInfo::_push(kKind, std::make_shared<Listener>());
}
CountDevice::~CountDevice() {
  c10::ThreadLocalDebugInfo::_pop(kKind);
}

}  // namespace dsj::memory
