// Runs on libtorch's operations instead of the CPU's kernels: the oracle of every kernel, and what
// a device without kernels of its own runs.
#pragma once

#include "engine/device/device.h"

namespace dsj::testing_support {

/// While it lives, tensors on the CPU are computed by `port`. One at a time.
class UsePort {
 public:
  explicit UsePort(kernels::Port& port) : before_(device::install(at::kCPU, port)) {}
  ~UsePort() { device::install(at::kCPU, before_); }
  UsePort(const UsePort&) = delete;

 private:
  kernels::Port& before_;
};

/// Calls f on the oracle port; returns what f returns.
template <typename F>
auto by_oracle(F f) {
  const UsePort use(device::aten_port(at::kCPU));
  return f();
}

}  // namespace dsj::testing_support
