// Norms over rows, forward and backward. Forward: a block per row. Backward: a block per partial
// sum. Its threads form groups, each with every n-th row of the block and with sums of its own: a
// row of 1,000 columns occupies 128 threads, too few to hide the latency of memory. A thread always
// has the same columns, so that sums over rows need no barrier.
#include <algorithm>

#include "engine/kernels/cuda/block.h"
#include "engine/kernels/cuda/elements.h"
#include "engine/kernels/cuda/launchers.h"

namespace dsj::kernels::cuda {
namespace {

/// Calls f(i) for each of this thread's packs, which begins at column i. Not unrolled: 512 threads
/// process 4,096 columns of 16 bits in one round, and an unrolling by four would spill registers.
template <int N, typename F>
__device__ __forceinline__ void for_packs(int64_t width, F f) {
#pragma unroll 1
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < width;
       i += static_cast<int64_t>(blockDim.x) * N)
    f(i);
}

template <typename T, int N>
__global__ void __launch_bounds__(512)
    rms_norm_kernel(const T* x, int64_t x_stride, const T* w, T* y, int64_t y_stride, float* rstd,
                    int64_t width, float eps) {
  DSJ_SHARED(float, part, kWarpsMax);
  const int64_t row = blockIdx.x;
  x += row * x_stride;
  y += row * y_stride;
  float sum = 0;
  for_packs<N>(width, [&](int64_t i) {
    const auto pack = read<N>(x + i);
    for (int k = 0; k < N; ++k) sum += value_of(pack.at[k]) * value_of(pack.at[k]);
  });
  const float scale = 1.0f / sqrtf(block_sum(sum, part) / static_cast<float>(width) + eps);
  if (threadIdx.x == 0) rstd[row] = scale;
  for_packs<N>(width, [&](int64_t i) {
    auto pack = read<N>(x + i);
    const auto weight = read<N>(w + i);
    for (int k = 0; k < N; ++k)
      pack.at[k] = rounded<T>(value_of(weight.at[k]) * round_as<T>(value_of(pack.at[k]) * scale));
    write<N>(y + i, pack);
  });
}

template <typename T, int N>
__global__ void __launch_bounds__(512)
    layer_norm_kernel(const T* x, int64_t x_stride, const T* w, const T* b, T* y, int64_t y_stride,
                      float* mean, float* rstd, int64_t width, float eps) {
  DSJ_SHARED(float, part, kWarpsMax);
  const int64_t row = blockIdx.x;
  x += row * x_stride;
  y += row * y_stride;
  const auto n = static_cast<float>(width);
  float sum = 0;
  for_packs<N>(width, [&](int64_t i) {
    const auto pack = read<N>(x + i);
    for (int k = 0; k < N; ++k) sum += value_of(pack.at[k]);
  });
  const float center = block_sum(sum, part) / n;
  float squares = 0;
  for_packs<N>(width, [&](int64_t i) {
    const auto pack = read<N>(x + i);
    for (int k = 0; k < N; ++k) {
      const float d = value_of(pack.at[k]) - center;
      squares += d * d;
    }
  });
  const float scale = 1.0f / sqrtf(block_sum(squares, part) / n + eps);
  if (threadIdx.x == 0) {
    mean[row] = center;
    rstd[row] = scale;
  }
  for_packs<N>(width, [&](int64_t i) {
    auto pack = read<N>(x + i);
    const auto weight = read<N>(w + i), bias = read<N>(b + i);
    for (int k = 0; k < N; ++k)
      pack.at[k] = rounded<T>((value_of(pack.at[k]) - center) * scale * value_of(weight.at[k]) +
                              value_of(bias.at[k]));
    write<N>(y + i, pack);
  });
}

/// This block's rows [first, last).
struct Share {
  int64_t first, last;
};
__device__ __forceinline__ Share share_of(int64_t rows) {
  const int64_t share = (rows + gridDim.x - 1) / gridDim.x,
                first = static_cast<int64_t>(blockIdx.x) * share;
  return {first, first + share < rows ? first + share : rows};
}

struct NormGrid {
  int64_t rows, width;
  int64_t dy_stride, x_stride, dx_stride, dw_stride, db_stride;
  int group;         ///< threads for a row, whole warps
  bool shared_sums;  ///< else there is one group, and the sums are in the result itself
};

__device__ __forceinline__ int group_of(const NormGrid& at) {
  return static_cast<int>(threadIdx.x) / at.group;
}
__device__ __forceinline__ int groups_of(const NormGrid& at) {
  return static_cast<int>(blockDim.x) / at.group;
}

/// for_packs() of a group's thread. 32-bit columns: with 64 bits registers are spilled.
template <int N, typename F>
__device__ __forceinline__ void for_packs(const NormGrid& at, bool active, F f) {
  const int width = active ? static_cast<int>(at.width) : 0;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % at.group * N; i < width; i += at.group * N) f(i);
}

/// The memory for a group's row of sums.
__device__ __forceinline__ float* begin_sums(float* shared, float* result, const NormGrid& at) {
  float* const sums = at.shared_sums ? shared + group_of(at) * at.width : result;
  for_packs<1>(at, true, [&](int i) { sums[i] = 0; });
  __syncthreads();
  return sums;
}
/// Adds up the groups' sums. After a barrier.
__device__ __forceinline__ void end_sums(const float* shared, float* result, const NormGrid& at) {
  if (!at.shared_sums) return;
  for_packs<1>(at.width, [&](int64_t i) {
    float sum = 0;
    for (int of = 0; of < groups_of(at); ++of) sum += shared[of * at.width + i];
    result[i] = sum;
  });
}

// Two blocks per SM: with 64 registers nothing spills. By default ptxas uses 40 registers, for
// three blocks, and spills.
template <typename T, int N>
__global__ void __launch_bounds__(512, 2)
    rms_norm_backward_kernel(const T* dy, const T* x, const T* w, const float* rstd, T* dx,
                             float* dw, NormGrid at) {
  DSJ_SHARED(float, part, kWarpsMax);
  DSJ_DYNAMIC_SHARED(float, shared);
  dw += blockIdx.x * at.dw_stride;
  float* const sums = begin_sums(shared, dw, at);
  const Share share = share_of(at.rows);
  for (int64_t first = share.first; first < share.last; first += groups_of(at)) {
    const int64_t row = first + group_of(at);
    const bool active = row < share.last;  // every thread comes to the barriers
    const T* const dy_row = dy + row * at.dy_stride;
    const T* const x_row = x + row * at.x_stride;
    T* const dx_row = dx + row * at.dx_stride;
    const float scale = active ? rstd[row] : 0;
    float dot = 0;
    for_packs<N>(at, active, [&](int i) {
      const auto d = read<N>(dy_row + i), weight = read<N>(w + i), v = read<N>(x_row + i);
      for (int k = 0; k < N; ++k)
        dot +=
            round_as<T>(value_of(d.at[k]) * value_of(weight.at[k])) * (value_of(v.at[k]) * scale);
    });
    const float mean = group_sum(dot, part, at.group) / static_cast<float>(at.width);
    for_packs<N>(at, active, [&](int i) {
      const auto d = read<N>(dy_row + i), weight = read<N>(w + i), v = read<N>(x_row + i);
      auto out = read<N>(dx_row + i);
      for (int k = 0; k < N; ++k) {
        const float normed = value_of(v.at[k]) * scale;
        const float dnormed = round_as<T>(value_of(d.at[k]) * value_of(weight.at[k]));
        sums[i + k] += value_of(d.at[k]) * round_as<T>(normed);
        out.at[k] =
            rounded<T>(value_of(out.at[k]) + round_as<T>(scale * (dnormed - normed * mean)));
      }
      write<N>(dx_row + i, out);
    });
  }
  __syncthreads();
  end_sums(shared, dw, at);
}

template <typename T, int N>
__global__ void __launch_bounds__(512, 2)
    layer_norm_backward_kernel(const T* dy, const T* x, const T* w, const float* mean,
                               const float* rstd, T* dx, float* dw, float* db, NormGrid at) {
  DSJ_SHARED(float, part, 2 * kWarpsMax);
  DSJ_DYNAMIC_SHARED(float, shared);
  dw += blockIdx.x * at.dw_stride;
  db += blockIdx.x * at.db_stride;
  float* const shared_db = shared + groups_of(at) * at.width;
  float* const dw_sums = begin_sums(shared, dw, at);
  float* const db_sums = begin_sums(shared_db, db, at);
  const Share share = share_of(at.rows);
  const auto n = static_cast<float>(at.width);
  for (int64_t first = share.first; first < share.last; first += groups_of(at)) {
    const int64_t row = first + group_of(at);
    const bool active = row < share.last;
    const T* const dy_row = dy + row * at.dy_stride;
    const T* const x_row = x + row * at.x_stride;
    T* const dx_row = dx + row * at.dx_stride;
    const float center = active ? mean[row] : 0, scale = active ? rstd[row] : 0;
    Two<float> both{0, 0};
    for_packs<N>(at, active, [&](int i) {
      const auto d = read<N>(dy_row + i), weight = read<N>(w + i), v = read<N>(x_row + i);
      for (int k = 0; k < N; ++k) {
        const float g = value_of(d.at[k]) * value_of(weight.at[k]);
        both.a += g;
        both.b += g * ((value_of(v.at[k]) - center) * scale);
      }
    });
    both = group_sum(both, part, at.group);
    const float sum = both.a / n, dot = both.b / n;
    for_packs<N>(at, active, [&](int i) {
      const auto d = read<N>(dy_row + i), weight = read<N>(w + i), v = read<N>(x_row + i);
      auto out = read<N>(dx_row + i);
      for (int k = 0; k < N; ++k) {
        const float normed = (value_of(v.at[k]) - center) * scale, g = value_of(d.at[k]);
        dw_sums[i + k] += g * normed;
        db_sums[i + k] += g;
        out.at[k] =
            rounded<T>(value_of(out.at[k]) +
                       round_as<T>(scale * (g * value_of(weight.at[k]) - sum - normed * dot)));
      }
      write<N>(dx_row + i, out);
    });
  }
  __syncthreads();
  end_sums(shared, dw, at);
  end_sums(shared_db, db, at);
}

constexpr int kSumColumns = 32, kSumRows = 8;  ///< threads of a block for its columns, and for each

/// A block per 32 columns: adjacent threads read adjacent memory, and every 8th row has its own.
template <typename T>
__global__ void __launch_bounds__(kSumColumns* kSumRows)
    sum_rows_kernel(const float* partial, int64_t stride, int64_t rows, T* out, int64_t width,
                    bool accumulate) {
  DSJ_SHARED(float, part, kSumColumns* kSumRows);
  const int64_t i =
      static_cast<int64_t>(blockIdx.x) * kSumColumns + static_cast<int64_t>(threadIdx.x % 32);
  float sum = 0;
  if (i < width)
    for (int64_t row = threadIdx.x / kSumColumns; row < rows; row += kSumRows)
      sum += partial[row * stride + i];
  part[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x >= kSumColumns || i >= width) return;
  for (int of = 1; of < kSumRows; ++of) sum += part[of * kSumColumns + threadIdx.x];
  if (accumulate) sum += value_of(out[i]);
  out[i] = rounded<T>(sum);
}

/// The grid of a backward pass with `sums` rows of sums per group.
struct BackwardLaunch {
  NormGrid at;
  Grid grid;
};
BackwardLaunch backward_launch(const Rows& dy, const Rows& x, const Rows& dx, const Rows& dw,
                               int64_t db_stride, int64_t sums, int pack) {
  const int group = threads_for(x.width / pack);
  const int64_t bytes = sums * x.width * 4;
  const int64_t groups = std::min<int64_t>(512 / group, kDynamicShared / std::max<int64_t>(1, bytes));
  const bool shared = groups > 0;
  const int64_t count = shared ? groups : 1;
  return {{x.rows, x.width, dy.stride, x.stride, dx.stride, dw.stride, db_stride, group, shared},
          {.blocks = dw.rows,
           .threads = static_cast<int>(count) * group,
           .shared_bytes = shared ? count * bytes : 0}};
}

}  // namespace

int64_t norm_partials(int64_t rows) {
  const int64_t shares = (rows + 7) / 8;
  return shares < 1 ? 1 : shares > 264 ? 264 : shares;
}

void run(Stream stream, const RmsNorm& op, Scratch&) {
  with_pack(op.x.type, packs(op.x, op.w, op.y), [&](auto* element, auto pack) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int N = decltype(pack)::value;
    launch({.blocks = op.x.rows, .threads = threads_for(op.x.width / N)}, stream,
           rms_norm_kernel<T, N>, data_of<T>(op.x), op.x.stride, data_of<T>(op.w),
           data_of<T>(op.y), op.y.stride, op.rstd.data(), op.x.width, op.eps);
  });
}

void run(Stream stream, const LayerNorm& op, Scratch&) {
  with_pack(op.x.type, packs(op.x, op.w, op.b, op.y), [&](auto* element, auto pack) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int N = decltype(pack)::value;
    launch({.blocks = op.x.rows, .threads = threads_for(op.x.width / N)}, stream,
           layer_norm_kernel<T, N>, data_of<T>(op.x), op.x.stride, data_of<T>(op.w),
           data_of<T>(op.b), data_of<T>(op.y), op.y.stride, op.mean.data(), op.rstd.data(),
           op.x.width, op.eps);
  });
}

void run(Stream stream, const RmsNormBackward& op, Scratch&) {
  with_pack(op.x.type, packs(op.dy, op.x, op.w, op.dx), [&](auto* element, auto pack) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int N = decltype(pack)::value;
    const auto [at, grid] = backward_launch(op.dy, op.x, op.dx, op.dw, 0, 1, N);
    launch(grid, stream, rms_norm_backward_kernel<T, N>, data_of<T>(op.dy), data_of<T>(op.x),
           data_of<T>(op.w), op.rstd.data(), data_of<T>(op.dx), data_of<float>(op.dw), at);
  });
}

void run(Stream stream, const LayerNormBackward& op, Scratch&) {
  with_pack(op.x.type, packs(op.dy, op.x, op.w, op.dx), [&](auto* element, auto pack) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int N = decltype(pack)::value;
    const auto [at, grid] = backward_launch(op.dy, op.x, op.dx, op.dw, op.db.stride, 2, N);
    launch(grid, stream, layer_norm_backward_kernel<T, N>, data_of<T>(op.dy), data_of<T>(op.x),
           data_of<T>(op.w), op.mean.data(), op.rstd.data(), data_of<T>(op.dx),
           data_of<float>(op.dw), data_of<float>(op.db), at);
  });
}

void run(Stream stream, const SumRows& op, Scratch&) {
  with_type(op.out.type, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    launch({.blocks = (op.out.width + kSumColumns - 1) / kSumColumns,
            .threads = kSumColumns * kSumRows},
           stream, sum_rows_kernel<T>, data_of<float>(op.partial), op.partial.stride, op.partial.rows, data_of<T>(op.out),
           op.out.width, op.accumulate);
  });
}

}  // namespace dsj::kernels::cuda
