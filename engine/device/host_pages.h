// Page-locked host memory for asynchronous copies, of exactly the requested size. (libtorch's
// allocator rounds each block up to a power of two.)
// Tested by: tests/engine/simulated/late_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace dsj::device {

inline constexpr int kDeviceKinds = static_cast<int>(at::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES);

/// How a kind of device allocates and frees page-locked memory. take() returns null if it cannot.
struct HostPages {
  void* (*take)(size_t bytes) = nullptr;
  void (*give)(void* memory) = nullptr;
};
/// Sets the functions of this kind of device. Before that, and on the CPU, host_memory() is
/// ordinary memory.
void provide_pages(at::DeviceType kind, HostPages pages);

/// A tensor in page-locked host memory for copies with a device; its content is undefined. Counted
/// in the current memory scope. Copies that use it must be done before its last reference is
/// dropped. Throws std::bad_alloc.
at::Tensor host_memory(at::IntArrayRef sizes, at::ScalarType type, at::Device place);

}  // namespace dsj::device
