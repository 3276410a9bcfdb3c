#include "engine/zero/flat/host_sum.h"

#include <ATen/ATen.h>

#include <utility>

#include "common/check.h"
#include "engine/device/host_pages.h"
#include "engine/memory/counting_allocator.h"

namespace dsj::zero {

HostSum::HostSum(int64_t numel, at::ScalarType type, HostCopies& copies) : copies_(copies) {
  const memory::MemoryScope scope(memory::Class::Host);
  host_ = device::host_memory({numel}, type, copies.device());
}

void HostSum::fetch(const at::Tensor& to) {
  DSJ_CHECK(!empty() && !fetched_);
  fetched_ = copies_.on_copy_lane([&] { at::Tensor(to).copy_(host_, /*non_blocking=*/true); });
}

void HostSum::arrived() {
  if (!fetched_) return;
  device::Streams& streams = copies_.streams();
  streams.hold(streams.current(), *fetched_);
  fetched_.reset();
}

void HostSum::send(at::Tensor sum) {
  DSJ_CHECK(!fetched_);
  sent_ = copies_.leave(std::move(sum), host_);
  here_ = false;
}

at::Tensor HostSum::get() {
  DSJ_CHECK(!empty());
  if (!std::exchange(here_, true)) copies_.streams().wait(*sent_);
  return host_;
}

void HostSum::clear() {
  sent_.reset();
  here_ = false;
}

}  // namespace dsj::zero
