// Copies between a device and page-locked host memory, on the device's copy lane. They overlap with
// compute and do not block the host. Offloaded states pass through a few blocks of host memory that
// all flats share; gradients have their own memory (host_sum.h). Not used on the CPU.
//
// One thread. All copies must be done before destruction: the collectives' shutdown() drains the
// device.
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
  /// `block_bytes`: size of a block, the largest request (plan::update_copies).
  HostCopies(at::Device device, int64_t block_bytes);

  /// What is copied. Each has two blocks, used in turn and allocated at first use.
  enum class What { Master, Low };
  /// A copy on its way to the host.
  struct Down {
    at::Tensor host;  ///< [numel]; valid after wait()
    device::MarkPtr there = {};
  };
  /// Starts to copy a contiguous tensor from the device, after the current lane's work. The second
  /// call after this one, for the same `what`, reuses the block.
  Down down(What what, const at::Tensor& tensor);
  /// Blocks the host until the copy has arrived.
  void wait(const Down& down) { streams_.wait(*down.there); }

  /// A block [numel] for the host to fill and pass to up(). Its content is undefined.
  at::Tensor block(What what, int64_t numel, at::ScalarType type);
  /// Starts to copy the last block of `what` to the device. The host must not write the block until
  /// block() returns it again; block() waits for the copy.
  void up(What what, const at::Tensor& host, const at::Tensor& to);
  /// Makes the current lane wait for the copies of up().
  void join();

  /// Starts to copy a tensor of the current lane to `host`. The tensor's memory is freed after the
  /// current lane has waited for the copy. At most plan::kGradientsLeaving copies are in flight.
  device::MarkPtr leave(at::Tensor tensor, const at::Tensor& host);
  /// Makes the current lane wait for all leave() copies, and frees their tensors.
  void all_left() { keep_leaving(0); }

  /// Runs `copy` on the copy lane after the current lane's work. Returns a mark at its end.
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
    device::MarkPtr busy = {};  ///< a copy uses the slot until this mark
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
