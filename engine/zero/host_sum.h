// The sum of a flat's gradient in host memory, where its states are offloaded from an accelerator. The
// sum visits the device: a later micro-step fetches it, adds to it and sends it back. So the device
// adds in the order and in the type in which it would without offload, and the host never stops for
// a gradient before the update. All copies are on the copy lane, which orders them. One thread.
//
// Tested by: tests/engine/simulated/step_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/zero/host_copies.h"

namespace dsj::zero {

class HostSum {
 public:
  /// Of `numel` elements: page-locked memory, taken now. `copies` must outlive it.
  HostSum(int64_t numel, at::ScalarType type, HostCopies& copies);

  int64_t numel() const { return host_.numel(); }
  /// Whether nothing was sent since clear().
  bool empty() const { return !sent_; }
  /// Starts copying the sum to a tensor of the device, made on the current lane.
  void fetch(const at::Tensor& to);
  /// The current lane waits for what was fetched.
  void arrived();
  /// Starts copying a tensor of the device, as the current lane leaves it, and frees it afterwards.
  void send(at::Tensor sum);
  /// The sum [numel] in host memory. The host waits for it.
  at::Tensor get();
  void clear();

 private:
  HostCopies& copies_;
  at::Tensor host_;
  device::MarkPtr sent_, fetched_;
  bool here_ = false;  ///< the host has waited for what was sent
};

}  // namespace dsj::zero
