#include "tests/engine/kernels/emulated/planted.h"

#include "engine/kernels/cuda/gpu.h"

namespace dsj::emulated::planted {
namespace {

__global__ void block_sum_kernel(Plant plant, const float* in, float* out) {
  DSJ_SHARED(float, part, 32);
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  unsigned mask = 0xffffffffu;
  if (plant == Plant::MaskWithoutCaller) mask = 0xfffffffeu;
  float sum = in[plant == Plant::GlobalOutside ? threadIdx.x + 1 : threadIdx.x];
  if (plant == Plant::MaskOfMissingLane && lane == 31) return;
  if (plant == Plant::ShuffleOutsideMask && lane < 16) sum = __shfl_sync(0x0000ffffu, sum, 16);
  for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(mask, sum, bits);
  if (plant == Plant::EndsBeforeBarrier && warp == 1) return;
  if (lane == 0) part[plant == Plant::SharedOutside ? warp + 32 : warp] = sum;
  if (plant == Plant::DivergentBarrier && warp == 1) {
    __syncthreads();
  } else if (plant != Plant::NoBarrier) {
    __syncthreads();
  }
  if (warp == 0) {
    sum = lane < warps || plant == Plant::UnwrittenShared ? part[lane] : 0.0f;
    for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
    if (plant != Plant::NoWarpBarrier) __syncwarp();  // a shuffle orders no memory
    if (lane == 1) part[0] = sum;
  }
  __syncthreads();
  out[threadIdx.x] = part[0];
}

__global__ void two_blocks_kernel(float* out) {
  out[0] = static_cast<float>(blockIdx.x);
}

}  // namespace

void block_sum(Plant plant, const float* in, float* out, int n) {
  kernels::cuda::launch({.blocks = 1, .threads = n}, {}, block_sum_kernel, plant, in, out);
}

void two_blocks(float* out) {
  kernels::cuda::launch({.blocks = 2, .threads = 1}, {}, two_blocks_kernel, out);
}

}  // namespace dsj::emulated::planted
