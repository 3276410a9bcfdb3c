// Optimizer updates over many tensors at once: one launch takes as many spans as fit in a kernel's
// parameters. The formulas are those of optim/element_rules.h.
#include "engine/kernels/cuda/block.h"
#include "engine/kernels/cuda/elements.h"
#include "engine/kernels/cuda/launchers.h"
#include "engine/optim/element_rules.h"

namespace dsj::kernels::cuda {
namespace {

constexpr int kThreads = 256, kMany = 44;
constexpr int64_t kPiece = 4096;  // elements per block

/// A span for a block. States beyond the rule's are null.
struct Part {
  int64_t n;
  float* p;
  const void* grad;
  void* low;
  float* states[3];
  const double* coefficient;
  Type grad_type, low_type;
  bool packs;  // all pointers allow packs of four elements
};
/// A kernel's parameters are limited to 4,096 bytes.
struct Parts {
  Part all[kMany];
  int first_block[kMany + 1];  // of each part; then the number of blocks
  int count;
};
static_assert(sizeof(Parts) <= 3900);

template <int N>
__device__ __forceinline__ Pack<float, N> gradient_at(const Part& part, int64_t i) {
  Pack<float, N> wide;
  if (part.grad_type == Type::F32) return read<N>(static_cast<const float*>(part.grad) + i);
  if (part.grad_type == Type::BF16) {
    const auto pack = read<N>(static_cast<const Bf16*>(part.grad) + i);
    for (int k = 0; k < N; ++k) wide.at[k] = value_of(pack.at[k]);
  } else {
    const auto pack = read<N>(static_cast<const Half*>(part.grad) + i);
    for (int k = 0; k < N; ++k) wide.at[k] = value_of(pack.at[k]);
  }
  return wide;
}

template <typename T, int N>
__device__ __forceinline__ void write_low(const Part& part, int64_t i, const Pack<float, N>& p) {
  Pack<T, N> low;
  for (int k = 0; k < N; ++k) low.at[k] = rounded<T>(p.at[k]);
  write<N>(static_cast<T*>(part.low) + i, low);
}

template <int N>
__device__ __forceinline__ void write_parameter(const Part& part, int64_t i,
                                                const Pack<float, N>& p) {
  write<N>(part.p + i, p);
  if (part.low == nullptr) return;
  if (part.low_type == Type::F32) return write<N>(static_cast<float*>(part.low) + i, p);
  if (part.low_type == Type::BF16) return write_low<Bf16>(part, i, p);
  write_low<Half>(part, i, p);
}

/// This block's part, and its piece of that part.
__device__ __forceinline__ int part_of_block(const Parts& parts, int64_t& piece) {
  int which = 0;
  while (static_cast<int>(blockIdx.x) >= parts.first_block[which + 1]) ++which;
  piece = static_cast<int64_t>(blockIdx.x) - parts.first_block[which];
  return which;
}

/// Calls f(p, g, states) for each of this thread's elements of a piece, N at a time. Writes back
/// states, and p if kParameter.
template <bool kParameter, int kStates, int N, typename F>
__device__ __forceinline__ void for_piece(const Part& part, int64_t piece, float scale, F f) {
  const int64_t first = piece * kPiece,
                last = first + kPiece < part.n ? first + kPiece : part.n;
#pragma unroll 1
  for (int64_t i = first + static_cast<int64_t>(threadIdx.x) * N; i < last;
       i += static_cast<int64_t>(blockDim.x) * N) {
    auto p = read<N>(part.p + i);
    const auto g = gradient_at<N>(part, i);
    Pack<float, N> states[3];
    for (int s = 0; s < kStates; ++s) states[s] = read<N>(part.states[s] + i);
    for (int k = 0; k < N; ++k) {
      float own[3] = {0, 0, 0};
      for (int s = 0; s < kStates; ++s) own[s] = states[s].at[k];
      f(p.at[k], g.at[k] * scale, own);
      for (int s = 0; s < kStates; ++s) states[s].at[k] = own[s];
    }
    for (int s = 0; s < kStates; ++s) write<N>(part.states[s] + i, states[s]);
    if constexpr (kParameter) write_parameter<N>(part, i, p);
  }
}

template <bool kParameter, int kStates, typename F>
__device__ __forceinline__ void for_elements(const Part& part, int64_t piece, float scale, F f) {
  if (part.packs) return for_piece<kParameter, kStates, 4>(part, piece, scale, f);
  for_piece<kParameter, kStates, 1>(part, piece, scale, f);
}

template <typename Rule>
__global__ void __launch_bounds__(kThreads) update_kernel(Rule rule, float scale, Parts parts) {
  int64_t piece;
  const Part& part = parts.all[part_of_block(parts, piece)];
  if constexpr (std::is_same_v<Rule, optim::LambElement>) {
    if (part.coefficient != nullptr) rule.take(*part.coefficient);
  }
  for_elements<true, Rule::kStates>(part, piece, scale, rule);
}

/// sums[2 block], sums[2 block + 1] = |p|^2 and |u|^2 of the block's piece.
__global__ void __launch_bounds__(kThreads)
    lamb_moments_kernel(optim::LambMoments rule, float scale, Parts parts, double* sums) {
  DSJ_SHARED(double, shared, 2 * kWarpsMax);
  int64_t piece;
  const Part& part = parts.all[part_of_block(parts, piece)];
  Two<double> mine{0, 0};
  for_elements<false, 2>(part, piece, scale, [&](float p, float g, float* s) {
    const double value = p, u = rule(p, g, s);
    mine.a += value * value;
    mine.b += u * u;
  });
  mine = block_sum(mine, shared);
  if (threadIdx.x == 0) {
    sums[2 * blockIdx.x] = mine.a;
    sums[2 * blockIdx.x + 1] = mine.b;
  }
}

/// The destination of each part's sums.
struct SumsOf {
  double* to[kMany];
  int first_block[kMany + 1];
  int count;
};

/// One block, because parts may share their sums, which must be added in order.
__global__ void __launch_bounds__(kThreads) add_sums_kernel(SumsOf of, const double* sums) {
  DSJ_SHARED(double, shared, 2 * kWarpsMax);
  for (int which = 0; which < of.count; ++which) {
    Two<double> mine{0, 0};
    for (int i = of.first_block[which] + static_cast<int>(threadIdx.x);
         i < of.first_block[which + 1]; i += static_cast<int>(blockDim.x)) {
      mine.a += sums[2 * i];
      mine.b += sums[2 * i + 1];
    }
    mine = block_sum(mine, shared);
    if (threadIdx.x == 0) {
      of.to[which][0] += mine.a;
      of.to[which][1] += mine.b;
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    lamb_coefficients_kernel(double least, double most, const double* sums, double* coefficients,
                             int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  coefficients[i] = optim::lamb_coefficient(least, most, sums[2 * i], sums[2 * i + 1]);
}

bool aligned(const void* data, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) == 0;
}

Part part_of(const Span& span) {
  const auto pack = [](Type type) { return type == Type::F32 ? 16 : 8; };
  Part part{span.n,
            span.p,
            span.grad,
            span.low,
            {},
            span.coefficient,
            span.grad_type,
            span.low_type,
            span.n % 4 == 0 && aligned(span.p, 16) && aligned(span.grad, pack(span.grad_type)) &&
                aligned(span.low, pack(span.low_type))};
  for (int i = 0; i < span.state_count; ++i) {
    part.states[i] = span.states[i];
    part.packs = part.packs && aligned(span.states[i], 16);
  }
  return part;
}

/// Calls f(parts, spans) for as many spans at a time as fit.
template <typename F>
void for_many(Spans spans, F f) {
  while (!spans.empty()) {
    const auto some = spans.first(spans.size() < kMany ? spans.size() : kMany);
    spans = spans.subspan(some.size());
    Parts parts{};
    for (const Span& span : some) {
      if (span.n == 0) continue;
      parts.all[parts.count] = part_of(span);
      parts.first_block[parts.count + 1] =
          parts.first_block[parts.count] + static_cast<int>((span.n + kPiece - 1) / kPiece);
      ++parts.count;
    }
    f(parts, some);
  }
}

template <typename Rule>
void update_all(Stream stream, const void* rule, float grad_scale, Spans spans) {
  for_many(spans, [&](const Parts& parts, Spans) {
    launch({.blocks = parts.first_block[parts.count], .threads = kThreads}, stream,
           update_kernel<Rule>, *static_cast<const Rule*>(rule), grad_scale, parts);
  });
}

template <typename... Rules>
struct Updates {
  static constexpr void (*kAll[])(Stream, const void*, float, Spans) = {update_all<Rules>...};
};

}  // namespace

void update(Stream stream, size_t which, const void* rule, float grad_scale, Spans spans) {
  optim::ElementRules::As<Updates>::kAll[which](stream, rule, grad_scale, spans);
}

void lamb_moments(Stream stream, const optim::LambMoments& rule, float grad_scale, Spans spans,
                  Scratch& scratch) {
  for_many(spans, [&](const Parts& parts, Spans some) {
    SumsOf of{};
    for (const Span& span : some)
      if (span.n > 0) of.to[of.count++] = span.sums;
    for (int i = 0; i <= kMany; ++i) of.first_block[i] = parts.first_block[i];
    const int64_t blocks = parts.first_block[parts.count];
    const Taken<double> sums(scratch, stream, 2 * blocks);
    launch({.blocks = blocks, .threads = kThreads}, stream, lamb_moments_kernel, rule, grad_scale,
           parts, sums.data());
    launch({.blocks = blocks > 0 ? 1 : 0, .threads = kThreads}, stream, add_sums_kernel, of,
           sums.data());
  });
}

void lamb_coefficients(Stream stream, double least, double most, const LambCoefficients& op) {
  const auto n = static_cast<int64_t>(op.coefficients.size());
  launch({.blocks = (n + kThreads - 1) / kThreads, .threads = kThreads}, stream,
         lamb_coefficients_kernel, least, most, op.sums.data(), op.coefficients.data(), n);
}

}  // namespace dsj::kernels::cuda
