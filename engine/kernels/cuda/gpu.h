// One source of a kernel for two compilers: nvcc, for a device, and g++, for the emulated block of
// tests/engine/kernels/emulated. Kernels use CUDA's own names. Only shared memory and launches have
// our names:
//
//   DSJ_SHARED(float, part, 32);           a static array of shared memory
//   DSJ_DYNAMIC_SHARED(float, sums);       the launch says how many bytes
//   launch({rows, threads}, stream, kernel<T>, argument...);
//
// C++20, without libtorch's headers, which cost half a minute of nvcc's time per file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define DSJ_SHARED(type, name, count) __shared__ type name[count]
#define DSJ_DYNAMIC_SHARED(type, name)                         \
  extern __shared__ __align__(16) unsigned char dsj_dynamic[]; \
  type* const name = reinterpret_cast<type*>(dsj_dynamic)
#else
#include <emulated_gpu.h>
#endif

#include "engine/kernels/port.h"

namespace dsj::kernels::cuda {

/// The shape of a launch.
struct Grid {
  int64_t blocks = 0;
  int threads = 32;          ///< per block; a multiple of 32, since warps shuffle with all lanes
  int64_t rows = 1;          ///< the grid's second dimension, at most 65535
  int64_t shared_bytes = 0;  ///< dynamic shared memory, at most kDynamicShared
};
/// The dynamic shared memory that every device has by default.
inline constexpr int64_t kDynamicShared = 48 * 1024;

/// Queues kernel(arguments...) on the stream; nothing if there are no blocks. Throws runtime_error
/// if the device refuses the launch; errors inside a kernel appear at the next wait.
template <typename... P, typename... A>
void launch(const Grid& at, [[maybe_unused]] Stream stream, void (*kernel)(P...), A... arguments) {
  if (at.blocks == 0 || at.rows == 0) return;
  const dim3 grid{static_cast<unsigned>(at.blocks), static_cast<unsigned>(at.rows), 1};
  const dim3 block{static_cast<unsigned>(at.threads), 1, 1};
  const auto shared = static_cast<size_t>(at.shared_bytes);
#ifdef __CUDACC__
  kernel<<<grid, block, shared, static_cast<cudaStream_t>(stream.handle)>>>(
      static_cast<P>(arguments)...);
  if (const cudaError_t code = cudaGetLastError(); code != cudaSuccess)
    throw std::runtime_error(std::string("a kernel could not be launched: ") +
                             cudaGetErrorString(code));
#else
  emulated::launch(grid, block, shared, kernel, static_cast<P>(arguments)...);
#endif
}

}  // namespace dsj::kernels::cuda
