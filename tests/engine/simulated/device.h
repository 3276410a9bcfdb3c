// A simulated GPU, for tests: libtorch's device for private use. Its memory is the host's, libtorch's
// operations run on the CPU, our CUDA kernels on the emulated block, and flash attention as a plain
// formula that checks what the real kernel asks for (flash.cc). So the engine takes the path that it
// takes on a GPU, and everything that would be queued there is counted.
//
// One per process, one thread. Speed, rounding and libtorch's own choices of kernels are out of
// reach: an operation counts as the launches that it takes on a GPU by reading (kLaunches).
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace dsj::simulated {

/// The kind of its tensors' devices.
inline constexpr auto kKind = at::DeviceType::PrivateUse1;

/// Begins with the first call: a GPU of compute capability 9.0, with our kernels.
at::Device device();

/// What was queued.
struct Work {
  int64_t ours = 0;       ///< launches of our kernels
  int64_t libtorchs = 0;  ///< launches of libtorch's operations, attention's apart
  int64_t attention = 0;  ///< calls of libtorch's attention
  int64_t copies = 0;     ///< to or from the host
  int64_t stops = 0;      ///< where the host waits for a value
  /// Every operand once for each time that it is read or written; copies to or from the host apart.
  int64_t bytes = 0;
  int64_t product_flops = 0, attention_flops = 0;
  std::map<std::string, int64_t> operations = {};  ///< libtorch's, by name
  std::string uncounted;  ///< names of those whose launches nobody has counted: must be empty
  int64_t launches() const { return ours + libtorchs; }
};
/// Since the last call.
Work take();

}  // namespace dsj::simulated
