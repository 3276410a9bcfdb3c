// The memory of a late device: used again at once, poisoned, and host pages that must not be touched yet.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "tests/engine/simulated/device.h"
#include "tests/engine/simulated/late_queues.h"

namespace dsj::simulated {
void* LateQueues::allocate(size_t bytes, int stream) {
  const Lock lock(mutex_);
  auto& kept = free_[{stream, bytes}];
  void* block = nullptr;
  if (!kept.empty()) {
    block = kept.back();
    kept.pop_back();
    Block* const known = order_.find(block);
    known->live = true;
  } else {
    block = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    std::memset(block, 0xFF, bytes);  // NaN in every type
    all_.push_back(block);
    order_.add(static_cast<const char*>(block), bytes, stream, false);
  }
  c10::reportMemoryUsageToProfiler(block, static_cast<int64_t>(bytes), 0, 0,
                                   {at::DeviceType::PrivateUse1, at::DeviceIndex(index_)});
  return block;
}

void LateQueues::free(void* data) {
  const Lock lock(mutex_);
  Block& block = *order_.find(data);
  const auto bytes = static_cast<size_t>(block.end - block.begin);
  c10::reportMemoryUsageToProfiler(data, -static_cast<int64_t>(bytes), 0, 0,
                                   {at::DeviceType::PrivateUse1, at::DeviceIndex(index_)});
  order_.free(block, tails_[static_cast<size_t>(block.stream)], here(), place_here("free"));
  free_[{block.stream, bytes}].push_back(data);
}

void LateQueues::add_host(void* data, size_t bytes) {
  const Lock lock(mutex_);
  host_blocks_.insert(&order_.add(static_cast<const char*>(data), bytes, 0, true));
}

void LateQueues::remove_host(void* data) {
  const Lock lock(mutex_);
  Block* const block = order_.find(data);
  if (const Access* access = order_.pending(*block, hosts_[owner_]))
    tell("page-locked memory is freed while a copy is pending", access->place, place_here("free"));
  mprotect(data, size_t(block->end - block->begin), PROT_READ | PROT_WRITE);
  host_blocks_.erase(block);
  protected_.erase(block);
  order_.forget(static_cast<const char*>(data));
}

bool LateQueues::is_host(const void* at) {
  const Lock lock(mutex_);
  const Block* const block = order_.find(at);
  return block && block->host;
}

void LateQueues::protect(Block& block) {
  const Access* const access = order_.pending(block, hosts_[owner_]);
  const int allowed = !access ? PROT_READ | PROT_WRITE : access->writes ? PROT_NONE : PROT_READ;
  const auto known = protected_.find(&block);
  const int before = known == protected_.end() ? -1 : known->second;
  if (before == allowed) return;
  mprotect(const_cast<char*>(block.begin), size_t(block.end - block.begin), allowed);
  protected_[&block] = allowed;
}

void LateQueues::protect_all() {
  if (std::this_thread::get_id() != owner_) return;
  for (Block* block : host_blocks_) protect(*block);
}

bool LateQueues::host_touched(void* at) {
  const Lock lock(mutex_);
  Block* const block = order_.find(at);
  if (!block || !block->host) return false;
  const Access* const access = order_.pending(*block, hosts_[owner_]);
  if (!access) return false;
  tell(access->writes ? "the host touches a value before it is there"
                      : "the host writes what a copy has yet to read",
       access->place, place_here("host"));
  mprotect(const_cast<char*>(block->begin), size_t(block->end - block->begin),
           PROT_READ | PROT_WRITE);
  protected_[block] = PROT_READ | PROT_WRITE;
  return true;
}

// ---- for the device

bool is_page_locked(LateQueues& queues, const void* at) {
  if (queues.is_host(at)) return true;
  const std::lock_guard lock(all_pages().mutex);
  const auto after = all_pages().bytes.upper_bound(const_cast<void*>(at));
  if (after == all_pages().bytes.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  if (static_cast<const char*>(at) >= static_cast<const char*>(begin) + bytes) return false;
  queues.add_host(begin, bytes);  // kept by the engine from an earlier device
  return true;
}

namespace {
struct Owner {
  LateQueues* queues;
  void* block;
};
}  // namespace

at::DataPtr allocate(LateQueues& queues, size_t bytes) {
  const at::Device place(kKind, static_cast<at::DeviceIndex>(queues.index()));
  if (bytes == 0) return {nullptr, place};
  void* const block = queues.allocate(bytes, here_of_thread().stream);
  return {block, new Owner{&queues, block},
          [](void* context) {
            const std::unique_ptr<Owner> owner(static_cast<Owner*>(context));
            owner->queues->free(owner->block);
          },
          place};
}

}  // namespace dsj::simulated
