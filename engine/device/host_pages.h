// Host memory that a device copies to and from while the host goes on: page-locked, of exactly the
// bytes that were asked for. (libtorch's own rounds each block up to a power of two.)
// Tested by: tests/engine/simulated/late_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace dsj::device {

inline constexpr int kDeviceKinds = static_cast<int>(at::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES);

/// How a kind of device makes and frees page-locked memory. take() returns null where there is none.
struct HostPages {
  void* (*take)(size_t bytes) = nullptr;
  void (*give)(void* memory) = nullptr;
};
/// From now on devices of this kind have these pages. Until then, and on the CPU, host_memory() is
/// ordinary memory.
void provide_pages(at::DeviceType kind, HostPages pages);

/// A tensor in page-locked host memory for copies with `place`; its content is undefined. Counted in
/// the current memory scope. Copies that use it must be done when its last reference goes. Throws
/// std::bad_alloc.
at::Tensor host_memory(at::IntArrayRef sizes, at::ScalarType type, at::Device place);

}  // namespace dsj::device
