// Elementwise kernels: rope and activations. A block per row and per piece of a row.
#include "engine/kernels/cuda/elements.h"
#include "engine/kernels/cuda/launchers.h"

namespace dsj::kernels::cuda {
namespace {

constexpr int kThreads = 256;

/// The first element of this thread's pack of a row; at or beyond width if it has none.
template <int N>
__device__ __forceinline__ int64_t piece() {
  return (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
}

/// A grid with a thread for each pack of each row.
Grid grid_of(int64_t rows, int64_t packs_per_row) {
  const int64_t whole = (packs_per_row + 31) / 32 * 32;
  const int threads = whole < kThreads ? static_cast<int>(whole) : kThreads;
  if (threads == 0) return {};
  return {.blocks = rows, .threads = threads, .rows = (packs_per_row + threads - 1) / threads};
}

/// A thread per N adjacent pairs of one head.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(T* x, int64_t stride, const float* cos, const float* sin, const int64_t* positions,
                int64_t pairs, int64_t half, float sign) {
  const int64_t at = piece<N>(), row = blockIdx.x;
  if (at >= pairs) return;
  const int64_t i = at % half, turn = positions[row] * half + i;
  T* const lows = x + row * stride + at / half * 2 * half + i;
  auto lo = read<N>(lows), hi = read<N>(lows + half);
  for (int k = 0; k < N; ++k) {
    const float a = value_of(lo.at[k]), b = value_of(hi.at[k]), c = cos[turn + k],
                s = sign * sin[turn + k];
    lo.at[k] = rounded<T>(round_as<T>(a * c) + round_as<T>(-b * s));
    hi.at[k] = rounded<T>(round_as<T>(b * c) + round_as<T>(a * s));
  }
  write<N>(lows, lo);
  write<N>(lows + half, hi);
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    swiglu_kernel(const T* gate_up, int64_t gate_stride, T* a, int64_t a_stride, int64_t width) {
  const int64_t i = piece<N>(), row = blockIdx.x;
  if (i >= width) return;
  const T* const gates = gate_up + row * gate_stride + i;
  const auto gate = read<N>(gates), up = read<N>(gates + width);
  Pack<T, N> out;
  for (int k = 0; k < N; ++k) {
    const float g = value_of(gate.at[k]);
    out.at[k] = rounded<T>(round_as<T>(g / (1.0f + expf(-g))) * value_of(up.at[k]));
  }
  write<N>(a + row * a_stride + i, out);
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(const T* da, int64_t da_stride, T* gate_up, int64_t gate_stride,
                           int64_t width) {
  const int64_t i = piece<N>(), row = blockIdx.x;
  if (i >= width) return;
  T* const gates = gate_up + row * gate_stride + i;
  const auto d = read<N>(da + row * da_stride + i);
  auto gate = read<N>(gates), up = read<N>(gates + width);
  for (int k = 0; k < N; ++k) {
    const float g = value_of(gate.at[k]), u = value_of(up.at[k]), grad = value_of(d.at[k]);
    const float sigmoid = 1.0f / (1.0f + expf(-g));
    gate.at[k] = rounded<T>(round_as<T>(grad * u) * sigmoid * (1.0f + g * (1.0f - sigmoid)));
    up.at[k] = rounded<T>(grad * round_as<T>(g * sigmoid));
  }
  write<N>(gates, gate);
  write<N>(gates + width, up);
}

constexpr float kGeluScale = 0.79788456080286536f;  // sqrt(2 / pi)
constexpr float kGeluCube = 0.044715f;

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    gelu_new_kernel(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t width) {
  const int64_t i = piece<N>(), row = blockIdx.x;
  if (i >= width) return;
  auto pack = read<N>(x + row * x_stride + i);
  for (int k = 0; k < N; ++k) {
    const float v = value_of(pack.at[k]);
    const float cube = round_as<T>(kGeluCube * round_as<T>(round_as<T>(v * v) * v));
    const float inner = round_as<T>(kGeluScale * round_as<T>(v + cube));
    const float turned = round_as<T>(tanhf(inner));
    pack.at[k] = rounded<T>(round_as<T>(0.5f * v) * round_as<T>(1.0f + turned));
  }
  write<N>(y + row * y_stride + i, pack);
}

template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    gelu_new_backward_kernel(const T* dy, int64_t dy_stride, T* x, int64_t x_stride,
                             int64_t width) {
  const int64_t i = piece<N>(), row = blockIdx.x;
  if (i >= width) return;
  const auto d = read<N>(dy + row * dy_stride + i);
  auto pack = read<N>(x + row * x_stride + i);
  for (int k = 0; k < N; ++k) {
    const float v = value_of(pack.at[k]);
    const float inner = kGeluScale * (v + kGeluCube * v * v * v);
    const float slope = kGeluScale * (1.0f + 3.0f * kGeluCube * v * v);
    const float sigmoid = 1.0f / (1.0f + expf(-2.0f * inner));
    pack.at[k] =
        rounded<T>(value_of(d.at[k]) * sigmoid * (1.0f + 2.0f * v * (1.0f - sigmoid) * slope));
  }
  write<N>(x + row * x_stride + i, pack);
}

}  // namespace

void run(Stream stream, const Rope& op, Scratch&) {
  const int64_t half = op.dim / 2, pairs = op.heads * half;
  // Each head begins with a pack, also where x has columns of no head.
  Rows halves = op.x;
  halves.width = half;
  with_pack(op.x.type, packs(halves), [&](auto* element, auto pack) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int N = decltype(pack)::value;
    launch(grid_of(op.x.rows, pairs / N), stream, rope_kernel<T, N>, data_of<T>(op.x),
           op.x.stride, op.cos.data(), op.sin.data(), op.positions.data(), pairs, half, op.sign);
  });
}

void run(Stream stream, const Swiglu& op, Scratch&) {
  with_pack(op.a.type, packs(op.gate_up, op.a), [&](auto* element, auto pack) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int N = decltype(pack)::value;
    launch(grid_of(op.a.rows, op.a.width / N), stream, swiglu_kernel<T, N>, data_of<T>(op.gate_up),
           op.gate_up.stride, data_of<T>(op.a), op.a.stride, op.a.width);
  });
}

void run(Stream stream, const SwigluBackward& op, Scratch&) {
  with_pack(op.da.type, packs(op.da, op.gate_up), [&](auto* element, auto pack) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int N = decltype(pack)::value;
    launch(grid_of(op.da.rows, op.da.width / N), stream, swiglu_backward_kernel<T, N>,
           data_of<T>(op.da), op.da.stride, data_of<T>(op.gate_up), op.gate_up.stride,
           op.da.width);
  });
}

void run(Stream stream, const GeluNew& op, Scratch&) {
  with_pack(op.x.type, packs(op.x, op.y), [&](auto* element, auto pack) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int N = decltype(pack)::value;
    launch(grid_of(op.x.rows, op.x.width / N), stream, gelu_new_kernel<T, N>, data_of<T>(op.x),
           op.x.stride, data_of<T>(op.y), op.y.stride, op.x.width);
  });
}

void run(Stream stream, const GeluNewBackward& op, Scratch&) {
  with_pack(op.x.type, packs(op.dy, op.x), [&](auto* element, auto pack) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int N = decltype(pack)::value;
    launch(grid_of(op.x.rows, op.x.width / N), stream, gelu_new_backward_kernel<T, N>,
           data_of<T>(op.dy), op.dy.stride, data_of<T>(op.x), op.x.stride, op.x.width);
  });
}

}  // namespace dsj::kernels::cuda
