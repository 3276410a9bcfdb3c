// CUDA's names for a kernel's text that g++ compiles: what engine/kernels/cuda/gpu.h includes where
// nvcc does not compile. The threads are those of block.h.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <tuple>
#include <type_traits>

#include "tests/engine/kernels/emulated/block.h"

// Not inlined: the launch below is compiled without -fsanitize=thread, the kernel with it.
#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define DSJ_HERE std::source_location::current()
#define __syncthreads() ::dsj::emulated::barrier(DSJ_HERE)
#define __syncwarp() ::dsj::emulated::warp_exchange(0xffffffffu, 0, -1, DSJ_HERE)
#define __shfl_xor_sync(mask, value, bits) \
  ::dsj::emulated::shuffle(mask, value, ::dsj::emulated::lane() ^ (bits), DSJ_HERE)
#define __shfl_down_sync(mask, value, by) \
  ::dsj::emulated::shuffle(mask, value, ::dsj::emulated::lane() + (by), DSJ_HERE)
#define __shfl_sync(mask, value, from) ::dsj::emulated::shuffle(mask, value, from, DSJ_HERE)
#define threadIdx (::dsj::emulated::thread_index())
#define blockIdx (::dsj::emulated::block_index())
#define blockDim (::dsj::emulated::block_dim())
#define gridDim (::dsj::emulated::grid_dim())

/// Static, so that AddressSanitizer puts red zones around it.
#define DSJ_SHARED(type, name, count)  \
  alignas(16) static type name[count]; \
  ::dsj::emulated::shared_array(name, sizeof(name))
#define DSJ_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(::dsj::emulated::dynamic_shared())

using dim3 = dsj::emulated::Index;

namespace dsj::emulated {

template <class T>
__attribute__((no_sanitize("thread"))) inline T shuffle(uint32_t mask, T mine, int from,
                                                        std::source_location at) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  uint64_t raw = 0;
  std::memcpy(&raw, &mine, sizeof(T));
  raw = warp_exchange(mask, raw, from, at);
  std::memcpy(&mine, &raw, sizeof(T));
  return mine;
}

/// What CUDA copies to the device at a launch.
template <class... P>
struct Call {
  void (*kernel)(P...);
  std::tuple<P...> arguments;
  __attribute__((no_sanitize("thread"))) static void run(const void* call) {
    const Call& self = *static_cast<const Call*>(call);
    [&]<size_t... i>(std::index_sequence<i...>) __attribute__((no_sanitize("thread"))) {
      self.kernel(std::get<i>(self.arguments)...);
    }
    (std::index_sequence_for<P...>());
  }
};

template <class... P, class... A>
void launch(dim3 grid, dim3 block, std::size_t shared_bytes, void (*kernel)(P...), A... arguments) {
  const Call<P...> call{kernel, std::tuple<P...>(arguments...)};
  launch(grid, block, shared_bytes, &Call<P...>::run, static_cast<const void*>(&call));
}

}  // namespace dsj::emulated
