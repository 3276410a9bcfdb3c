#include "engine/zero/storage/host_copies.h"

#include <ATen/ATen.h>

#include <utility>

#include "common/check.h"
#include "engine/device/host_pages.h"
#include "engine/device/lanes.h"
#include "engine/memory/counting_allocator.h"
#include "job/plan/zero_plan.h"

namespace dsj::zero {

HostCopies::HostCopies(at::Device device, int64_t block_bytes)
    : device_(device), block_bytes_(block_bytes), streams_(device::streams(device)) {}

at::Tensor HostCopies::block(What what, int64_t numel, at::ScalarType type) {
  Ring& all = ring(what);
  all.last = (all.last + 1) % all.slots.size();
  Slot& slot = all.slots[all.last];
  if (slot.busy) streams_.wait(*slot.busy);
  slot.busy.reset();
  const auto bytes = numel * static_cast<int64_t>(c10::elementSize(type));
  DSJ_CHECK(bytes <= block_bytes_);
  if (!slot.memory.defined()) {
    const memory::MemoryScope scope(memory::Class::Host);
    slot.memory = device::host_memory({block_bytes_}, at::kByte, device_);
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

device::MarkPtr HostCopies::leave(at::Tensor tensor, const at::Tensor& host) {
  keep_leaving(plan::kGradientsLeaving - 1);
  const auto gone = on_copy_lane([&] { at::Tensor(host).copy_(tensor, /*non_blocking=*/true); });
  leaving_.push_back({std::move(tensor), gone});
  return gone;
}

void HostCopies::keep_leaving(size_t count) {
  for (; leaving_.size() > count; leaving_.pop_front())
    streams_.hold(streams_.current(), *leaving_.front().gone);
}

void HostCopies::join() {
  streams_.hold(streams_.current(), *streams_.record(device::Lane::Copy));
}

}  // namespace dsj::zero
