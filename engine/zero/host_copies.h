// Copies of offloaded state between a device and page-locked host memory, on the device's copy lane:
// beside what it computes, and the host goes on. A few blocks of host memory serve all flats in turn.
// On the CPU nobody needs it.
//
// One thread. Its copies must be done when it goes: the collectives' shutdown() drains the device.
// Tested by: tests/engine/simulated/step_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

#include "engine/device/streams.h"

namespace dsj::zero {

class HostCopies {
 public:
  explicit HostCopies(at::Device device);

  /// What is copied; each has two blocks of its own, taken in turn.
  enum class What { Gradient, Master, Low };
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

  /// Runs `copy` on the copy lane, after what the current lane holds. The mark: it is done.
  template <typename F>
  device::MarkPtr on_copy_lane(F copy) {
    streams_.hold(device::Lane::Copy, *streams_.record(streams_.current()));
    const device::WithLane lane(streams_, device::Lane::Copy);
    copy();
    return streams_.record(device::Lane::Copy);
  }
  device::Streams& streams() { return streams_; }

 private:
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
  device::Streams& streams_;
  std::array<Ring, 3> rings_;
};

}  // namespace dsj::zero
