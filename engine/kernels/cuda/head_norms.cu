// RMS norm of the heads of each row, forward and backward: a warp per head, so that sums need no
// block barrier.
#include "engine/kernels/cuda/block.h"
#include "engine/kernels/cuda/elements.h"
#include "engine/kernels/cuda/launchers.h"

namespace dsj::kernels::cuda {
namespace {

constexpr int kWarps = 8;

/// Calls f(i) for each of this lane's packs of a head.
template <int N, typename F>
__device__ __forceinline__ void for_lane(int64_t dim, F f) {
#pragma unroll 1
  for (int64_t i = static_cast<int64_t>(threadIdx.x % 32) * N; i < dim; i += 32 * N) f(i);
}

/// The heads: head h of row r begins at r * stride + h * dim.
struct Heads {
  int64_t rows, heads, dim, x_stride, dy_stride;
};

template <typename T, int N>
__global__ void __launch_bounds__(32 * kWarps)
    head_norm_kernel(T* x, const T* w, float* rstd, Heads at, float eps) {
  const int64_t which = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (which >= at.rows * at.heads) return;
  T* const head = x + which / at.heads * at.x_stride + which % at.heads * at.dim;
  float sum = 0;
  for_lane<N>(at.dim, [&](int64_t i) {
    const auto pack = read<N>(head + i);
    for (int k = 0; k < N; ++k) sum += value_of(pack.at[k]) * value_of(pack.at[k]);
  });
  const float scale = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(at.dim) + eps);
  if (threadIdx.x % 32 == 0) rstd[which] = scale;
  for_lane<N>(at.dim, [&](int64_t i) {
    auto pack = read<N>(head + i);
    const auto weight = read<N>(w + i);
    for (int k = 0; k < N; ++k)
      pack.at[k] = rounded<T>(value_of(weight.at[k]) * round_as<T>(value_of(pack.at[k]) * scale));
    write<N>(head + i, pack);
  });
}

/// A block per row of dw. Each of its warps loops over heads and sums dw in its own row of shared
/// memory, or, if `in_place`, directly in the row of dw, with one warp per block.
template <typename T, int N>
__global__ void __launch_bounds__(32 * kWarps)
    head_norm_backward_kernel(T* dy, const T* x, const T* w, const float* rstd, float* dw,
                              int64_t dw_stride, Heads at, bool in_place) {
  DSJ_DYNAMIC_SHARED(float, shared);
  const int64_t warp = threadIdx.x / 32, warps = blockDim.x / 32;
  dw += blockIdx.x * dw_stride;
  float* const sums = in_place ? dw : shared + warp * at.dim;
  for_lane<N>(at.dim, [&](int64_t i) {
    for (int k = 0; k < N; ++k) sums[i + k] = 0;
  });
  const int64_t all = at.rows * at.heads, step = static_cast<int64_t>(gridDim.x) * warps;
  for (int64_t which = blockIdx.x * warps + warp; which < all; which += step) {
    T* const gradient = dy + which / at.heads * at.dy_stride + which % at.heads * at.dim;
    const T* const head = x + which / at.heads * at.x_stride + which % at.heads * at.dim;
    const float scale = rstd[which];
    float dot = 0;
    for_lane<N>(at.dim, [&](int64_t i) {
      const auto d = read<N>(gradient + i), weight = read<N>(w + i), v = read<N>(head + i);
      for (int k = 0; k < N; ++k)
        dot +=
            round_as<T>(value_of(d.at[k]) * value_of(weight.at[k])) * (value_of(v.at[k]) * scale);
    });
    const float mean = warp_sum(dot) / static_cast<float>(at.dim);
    for_lane<N>(at.dim, [&](int64_t i) {
      auto d = read<N>(gradient + i);
      const auto weight = read<N>(w + i), v = read<N>(head + i);
      for (int k = 0; k < N; ++k) {
        const float normed = value_of(v.at[k]) * scale, g = value_of(d.at[k]);
        sums[i + k] += g * round_as<T>(normed);
        d.at[k] =
            rounded<T>(scale * (round_as<T>(g * value_of(weight.at[k])) - normed * mean));
      }
      write<N>(gradient + i, d);
    });
  }
  if (in_place) return;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < at.dim; i += blockDim.x) {
    float sum = 0;
    for (int64_t of = 0; of < warps; ++of) sum += shared[of * at.dim + i];
    dw[i] = sum;
  }
}

/// Whether every head begins at 16 bytes and has whole packs.
bool heads_pack(const Rows& x, const Rows& w) {
  return packs(Rows{x.data, x.type, x.rows, w.width, x.stride}, w);
}

}  // namespace

void run(Stream stream, const HeadNorm& op, Scratch&) {
  const Heads at{op.x.rows, op.heads, op.w.width, op.x.stride, 0};
  with_pack(op.x.type, heads_pack(op.x, op.w), [&](auto* element, auto pack) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int N = decltype(pack)::value;
    launch({.blocks = (op.x.rows * op.heads + kWarps - 1) / kWarps, .threads = 32 * kWarps}, stream,
           head_norm_kernel<T, N>, data_of<T>(op.x), data_of<T>(op.w), op.rstd.data(), at, op.eps);
  });
}

void run(Stream stream, const HeadNormBackward& op, Scratch&) {
  const Heads at{op.x.rows, op.heads, op.w.width, op.x.stride, op.dy.stride};
  const int64_t row = op.w.width * 4;
  const bool in_place = row > kDynamicShared;
  const int warps = in_place ? 1 : static_cast<int>(row * kWarps > kDynamicShared
                                                        ? kDynamicShared / row
                                                        : kWarps);
  const bool whole = heads_pack(op.x, op.w) && heads_pack(op.dy, op.w);
  with_pack(op.x.type, whole, [&](auto* element, auto pack) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int N = decltype(pack)::value;
    launch({.blocks = op.dw.rows,
            .threads = 32 * warps,
            .shared_bytes = in_place ? 0 : row * warps},
           stream, head_norm_backward_kernel<T, N>, data_of<T>(op.dy), data_of<T>(op.x),
           data_of<T>(op.w), op.rstd.data(), data_of<float>(op.dw), op.dw.stride, at, in_place);
  });
}

}  // namespace dsj::kernels::cuda
