// Copies between a device and page-locked host memory, on the device's copy lane: beside what it
// computes, and the host goes on. Offloaded states pass through a few blocks of host memory, which
// serve all flats in turn; gradients have memory of their own (host_sum.h). On the CPU nobody needs
// it.
//
// One thread. Its copies must be done when it goes: the collectives' shutdown() drains the device.
// Tested by: tests/engine/simulated/step_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <deque>

#include "engine/device/streams.h"

namespace dsj::zero {

class HostCopies {
 public:
  /// `block_bytes`: of a block, the most that is asked for (plan::update_copies).
  HostCopies(at::Device device, int64_t block_bytes);

  /// What is copied; each has two blocks of its own, taken in turn, made when it is first used.
  enum class What { Master, Low };
  /// A copy on its way to the host.
  struct Down {
    at::Tensor host;  ///< [numel]; its content after wait()
    device::MarkPtr there = {};
  };
  /// Starts copying a contiguous tensor of the device, as the current lane leaves it. The block is
  /// taken again by the next but one call for the same `what`.
  Down down(What what, const at::Tensor& tensor);
  /// The host waits until the copy is there.
  void wait(const Down& down) { streams_.wait(*down.there); }

  /// A block [numel] for the host to fill and to send up. Its content is undefined.
  at::Tensor block(What what, int64_t numel, at::ScalarType type);
  /// Starts copying the last block of `what` to the device. The host does not write it before it is
  /// taken again, which waits.
  void up(What what, const at::Tensor& host, const at::Tensor& to);
  /// The current lane waits for what was sent up.
  void join();

  /// Starts copying a tensor of the current lane to `host`. The tensor's memory is free when the
  /// current lane has waited for the copy: plan::kGradientsLeaving are on their way at a time.
  device::MarkPtr leave(at::Tensor tensor, const at::Tensor& host);
  /// The current lane waits for all that is on its way; its memory is free.
  void all_left() { keep_leaving(0); }

  /// Runs `copy` on the copy lane, after what the current lane holds. The mark: it is done.
  template <typename F>
  device::MarkPtr on_copy_lane(F copy) {
    streams_.hold(device::Lane::Copy, *streams_.record(streams_.current()));
    const device::WithLane lane(streams_, device::Lane::Copy);
    copy();
    return streams_.record(device::Lane::Copy);
  }
  device::Streams& streams() { return streams_; }
  at::Device device() const { return device_; }

 private:
  void keep_leaving(size_t count);
  struct Slot {
    at::Tensor memory;
    device::MarkPtr busy = {};  ///< until then a copy uses it
  };
  struct Ring {
    std::array<Slot, 2> slots;
    size_t last = 0;
  };
  Ring& ring(What what) { return rings_[static_cast<size_t>(what)]; }

  const at::Device device_;
  const int64_t block_bytes_;
  device::Streams& streams_;
  std::array<Ring, 2> rings_;
  struct Leaving {
    at::Tensor tensor;
    device::MarkPtr gone;
  };
  std::deque<Leaving> leaving_;
};

}  // namespace dsj::zero
