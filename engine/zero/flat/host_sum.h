// The sum of a flat's gradient in host memory, if its states are offloaded from an accelerator. A
// later micro-step fetches the sum to the device, adds to it and sends it back. So the device adds
// in the same order and type as without offload, and the host waits for no gradient before the
// update. All copies are on the copy lane, which orders them. One thread.
//
// Tested by: tests/engine/simulated/step_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/zero/storage/host_copies.h"

namespace dsj::zero {

class HostSum {
 public:
  /// Allocates page-locked memory for `numel` elements. `copies` must outlive this object.
  HostSum(int64_t numel, at::ScalarType type, HostCopies& copies);

  int64_t numel() const { return host_.numel(); }
  /// Whether no sum was sent since clear().
  bool empty() const { return !sent_; }
  /// Starts to copy the sum to a device tensor that the current lane allocated.
  void fetch(const at::Tensor& to);
  /// Makes the current lane wait for fetch().
  void arrived();
  /// Starts to copy a device tensor to the host, after the current lane's work, and then frees it.
  void send(at::Tensor sum);
  /// Waits for the copy and returns the sum [numel] in host memory.
  at::Tensor get();
  void clear();

 private:
  HostCopies& copies_;
  at::Tensor host_;
  device::MarkPtr sent_, fetched_;
  bool here_ = false;  ///< the host has waited for the last send()
};

}  // namespace dsj::zero
