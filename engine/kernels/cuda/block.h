// Sums over a block of threads, or over groups of it. Every thread of the block must call them and
// gets the result. The order of additions depends only on the number of threads, so results are
// reproducible.
#pragma once

#include "engine/kernels/cuda/gpu.h"

namespace dsj::kernels::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kWarpsMax = 32;

/// Two sums with one pair of barriers.
template <typename V>
struct Two {
  V a, b;
};

template <typename V>
__device__ __forceinline__ V warp_sum(V v) {
  for (int bits = 16; bits > 0; bits /= 2) v += __shfl_xor_sync(kAllLanes, v, bits);
  return v;
}

/// The sum over each group of `size` neighbouring threads, whole warps. `part`: kWarpsMax values of
/// shared memory, reusable afterwards.
template <typename V>
__device__ __forceinline__ V group_sum(V v, V* part, unsigned size) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = size / 32;
  const unsigned first = warp / warps * warps;
  v = warp_sum(v);
  if (lane == 0) part[warp] = v;
  __syncthreads();
  v = warp_sum(lane < warps ? part[first + lane] : V{0});
  __syncthreads();
  return v;
}

/// `part`: 2 * kWarpsMax values.
template <typename V>
__device__ __forceinline__ Two<V> group_sum(Two<V> v, V* part, unsigned size) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = size / 32;
  const unsigned first = warp / warps * warps;
  v = {warp_sum(v.a), warp_sum(v.b)};
  if (lane == 0) {
    part[warp] = v.a;
    part[kWarpsMax + warp] = v.b;
  }
  __syncthreads();
  v.a = warp_sum(lane < warps ? part[first + lane] : V{0});
  v.b = warp_sum(lane < warps ? part[kWarpsMax + first + lane] : V{0});
  __syncthreads();
  return v;
}

/// The sum over the block. `part`: as above.
template <typename V>
__device__ __forceinline__ V block_sum(V v, V* part) {
  return group_sum(v, part, blockDim.x);
}
template <typename V>
__device__ __forceinline__ Two<V> block_sum(Two<V> v, V* part) {
  return group_sum(v, part, blockDim.x);
}

}  // namespace dsj::kernels::cuda
