// Sums to one number on the device: the loss and the squares of a gradient. Blocks write partial
// sums, and one block adds these in order. So results are reproducible, and the host does not wait.
#include <cfloat>

#include "engine/kernels/cuda/block.h"
#include "engine/kernels/cuda/elements.h"
#include "engine/kernels/cuda/launchers.h"

namespace dsj::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int64_t kSquares = 1 << 16;  // elements per partial sum of squares

/// *sum += the sum of parts[0..n). One block.
__global__ void __launch_bounds__(kThreads)
    add_up_kernel(const double* parts, int64_t n, double* sum) {
  DSJ_SHARED(double, part, kWarpsMax);
  double mine = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) mine += parts[i];
  const double all = block_sum(mine, part);
  if (threadIdx.x == 0) *sum += all;
}

/// The sum of e^(x - peak) over some x, and their peak. {-FLT_MAX, 0} for no elements, which gives
/// no NaN.
struct Exps {
  float peak = -FLT_MAX, sum = 0;
};

__device__ __forceinline__ Exps joined(Exps a, Exps b) {
  const float peak = a.peak > b.peak ? a.peak : b.peak;
  return {peak, a.sum * expf(a.peak - peak) + b.sum * expf(b.peak - peak)};
}

__device__ __forceinline__ Exps warp_joined(Exps mine) {
  for (int bits = 16; bits > 0; bits /= 2) {
    const Exps other{__shfl_xor_sync(kAllLanes, mine.peak, bits),
                     __shfl_xor_sync(kAllLanes, mine.sum, bits)};
    mine = joined(mine, other);
  }
  return mine;
}

/// Joins over the block; all threads get the result. `part`: 2 * kWarpsMax values.
__device__ __forceinline__ Exps block_joined(Exps mine, float* part) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  mine = warp_joined(mine);
  if (lane == 0) {
    part[warp] = mine.peak;
    part[kWarpsMax + warp] = mine.sum;
  }
  __syncthreads();
  mine = lane < warps ? Exps{part[lane], part[kWarpsMax + lane]} : Exps{};
  return warp_joined(mine);
}

/// A block per row: one pass for peak and sum, one for the gradient. losses[row] = -log
/// softmax[label].
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_kernel(T* logits, int64_t stride, const int64_t* labels, float scale,
                         double* losses, int64_t width) {
  DSJ_SHARED(float, part, 2 * kWarpsMax);
  const int64_t row = blockIdx.x, label = labels[row];
  logits += row * stride;
  const float target = value_of(logits[label]);
  const int64_t begin = static_cast<int64_t>(threadIdx.x) * N,
                step = static_cast<int64_t>(blockDim.x) * N;
  Exps mine;
  for (int64_t i = begin; i < width; i += step) {
    const auto pack = read<N>(logits + i);
    for (int k = 0; k < N; ++k) {
      const float value = value_of(pack.at[k]);
      if (value > mine.peak) {
        mine = {value, mine.sum * expf(mine.peak - value) + 1.0f};
      } else {
        mine.sum += expf(value - mine.peak);  // also for NaN, which stays in the sum
      }
    }
  }
  const Exps all = block_joined(mine, part);  // its barrier: all have read the target
  if (threadIdx.x == 0) losses[row] = logf(all.sum) + all.peak - target;
  const float inverse = scale / all.sum;
  for (int64_t i = begin; i < width; i += step) {
    auto pack = read<N>(logits + i);
    for (int k = 0; k < N; ++k) {
      const float e = expf(value_of(pack.at[k]) - all.peak);
      pack.at[k] = rounded<T>(i + k == label ? (e / all.sum - 1.0f) * scale : e * inverse);
    }
    write<N>(logits + i, pack);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads) squares_kernel(const T* x, int64_t n, double* parts) {
  DSJ_SHARED(double, part, kWarpsMax);
  const int64_t first = blockIdx.x * kSquares, last = first + kSquares < n ? first + kSquares : n;
  float mine = 0;
  for (int64_t i = first + threadIdx.x; i < last; i += blockDim.x)
    mine += value_of(x[i]) * value_of(x[i]);
  const double all = block_sum(static_cast<double>(mine), part);
  if (threadIdx.x == 0) parts[blockIdx.x] = all;
}

void add_up(Stream stream, const double* parts, int64_t n, double* sum) {
  launch({.blocks = n > 0 ? 1 : 0, .threads = threads_for(n)}, stream, add_up_kernel, parts, n,
         sum);
}

}  // namespace

void run(Stream stream, const CrossEntropy& op, Scratch& scratch) {
  const Taken<double> losses(scratch, stream, op.logits.rows);
  with_pack(op.logits.type, packs(op.logits), [&](auto* element, auto pack) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int N = decltype(pack)::value;
    launch({.blocks = op.logits.rows, .threads = threads_for(op.logits.width / N)}, stream,
           cross_entropy_kernel<T, N>, data_of<T>(op.logits), op.logits.stride, op.labels.data(),
           op.scale, losses.data(), op.logits.width);
  });
  add_up(stream, losses.data(), op.logits.rows, op.loss);
}

int64_t square_blocks(int64_t n) {
  return (n + kSquares - 1) / kSquares;
}

void run(Stream stream, const SumOfSquares& op, Scratch& scratch) {
  const int64_t blocks = square_blocks(op.x.width);
  const Taken<double> parts(scratch, stream, blocks);
  with_type(op.x.type, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    launch({.blocks = blocks, .threads = threads_for(op.x.width)}, stream, squares_kernel<T>,
           data_of<T>(op.x), op.x.width, parts.data());
  });
  add_up(stream, parts.data(), blocks, op.sum);
}

}  // namespace dsj::kernels::cuda
