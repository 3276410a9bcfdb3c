// The gradient of an embedding, without atomics: rows are sorted by index, then the first row of
// each group sums the group in fp32, in row order, and rounds once. So results are reproducible and
// equal to the CPU's.
#include "engine/kernels/cuda/elements.h"
#include "engine/kernels/cuda/launchers.h"

namespace dsj::kernels::cuda {
namespace {

constexpr int kThreads = 256;

/// order[rank of row n by (index, n)] = n. A thread per row counts the rows before its own: n^2
/// comparisons, in tiles that the block shares. A micro-batch has some ten thousand tokens, so 10^8
/// comparisons, which take less time than the launches of a radix sort.
__global__ void __launch_bounds__(kThreads)
    sort_rows_kernel(const int64_t* index, int64_t rows, int64_t* order) {
  DSJ_SHARED(int64_t, tile, kThreads);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t mine = row < rows ? index[row] : 0;
  int64_t before = 0;
  for (int64_t first = 0; first < rows; first += kThreads) {
    const int64_t count = rows - first < kThreads ? rows - first : kThreads;
    if (threadIdx.x < count) tile[threadIdx.x] = index[first + threadIdx.x];
    __syncthreads();
    for (int64_t i = 0; i < count; ++i)
      before += tile[i] < mine || (tile[i] == mine && first + i < row);
    __syncthreads();
  }
  if (row < rows) order[before] = row;
}

/// A block per position in the order and per piece of a row. Only the first position of a group
/// works.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    add_groups_kernel(const T* x, int64_t x_stride, const int64_t* index, const int64_t* order,
                      int64_t rows, T* out, int64_t out_stride, int64_t width) {
  const int64_t place = blockIdx.x, to = index[order[place]],
                i = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  if (i >= width || (place > 0 && index[order[place - 1]] == to)) return;
  T* const sum_at = out + to * out_stride + i;
  auto pack = read<N>(sum_at);
  float sums[N];
  for (int k = 0; k < N; ++k) sums[k] = value_of(pack.at[k]);
#pragma unroll 1
  for (int64_t next = place; next < rows; ++next) {
    const int64_t row = order[next];
    if (index[row] != to) break;
    const auto add = read<N>(x + row * x_stride + i);
    for (int k = 0; k < N; ++k) sums[k] += value_of(add.at[k]);
  }
  for (int k = 0; k < N; ++k) pack.at[k] = rounded<T>(sums[k]);
  write<N>(sum_at, pack);
}

}  // namespace

void run(Stream stream, const ScatterRows& op, Scratch& scratch) {
  const Taken<int64_t> order(scratch, stream, op.x.rows);
  launch({.blocks = (op.x.rows + kThreads - 1) / kThreads, .threads = kThreads}, stream,
         sort_rows_kernel, op.index.data(), op.x.rows, order.data());
  with_pack(op.x.type, packs(op.x, op.out), [&](auto* element, auto pack) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int N = decltype(pack)::value;
    const int64_t packs_of_row = (op.x.width + N - 1) / N;
    const int threads = packs_of_row < kThreads ? threads_for(packs_of_row) : kThreads;
    launch(
        {.blocks = op.x.rows, .threads = threads, .rows = (packs_of_row + threads - 1) / threads},
        stream, add_groups_kernel<T, N>, data_of<T>(op.x), op.x.stride, op.index.data(),
        order.data(), op.x.rows, data_of<T>(op.out), op.out.stride, op.x.width);
  });
}

}  // namespace dsj::kernels::cuda
