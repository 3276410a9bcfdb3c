#include "engine/zero/host_copies.h"

#include <ATen/ATen.h>

#include "engine/device/host_pages.h"
#include "engine/device/lanes.h"
#include "engine/memory/counting_allocator.h"

namespace dsj::zero {

HostCopies::HostCopies(at::Device device) : device_(device), streams_(device::streams(device)) {}

at::Tensor HostCopies::block(What what, int64_t numel, at::ScalarType type) {
  Ring& all = ring(what);
  all.last = (all.last + 1) % all.slots.size();
  Slot& slot = all.slots[all.last];
  if (slot.busy) streams_.wait(*slot.busy);
  slot.busy.reset();
  const auto bytes = numel * static_cast<int64_t>(c10::elementSize(type));
  if (!slot.memory.defined() || static_cast<int64_t>(slot.memory.nbytes()) < bytes) {
    slot.memory.reset();
    const memory::MemoryScope scope(memory::Class::Host);
    slot.memory = device::host_memory({bytes}, at::kByte, device_);
  }
  return slot.memory.narrow(0, 0, bytes).view(type);
}

HostCopies::Down HostCopies::down(What what, const at::Tensor& tensor) {
  const at::Tensor host = block(what, tensor.numel(), tensor.scalar_type());
  const auto there = on_copy_lane([&] { host.copy_(tensor, /*non_blocking=*/true); });
  Ring& all = ring(what);
  all.slots[all.last].busy = there;
  return {host, there};
}

void HostCopies::up(What what, const at::Tensor& host, const at::Tensor& to) {
  Ring& all = ring(what);
  all.slots[all.last].busy =
      on_copy_lane([&] { at::Tensor(to).copy_(host, /*non_blocking=*/true); });
}

void HostCopies::join() {
  streams_.hold(streams_.current(), *streams_.record(device::Lane::Copy));
}

}  // namespace dsj::zero
