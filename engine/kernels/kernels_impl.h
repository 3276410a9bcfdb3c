// The source of the kernels, compiled once per instruction set: each kernels_*.cc defines
// DSJ_KERNELS_ISA and includes it. Loops are written for the compiler's vectoriser: no calls, no
// data-dependent branches, sums in a fixed number of lanes.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "engine/kernels/element.h"
#include "engine/kernels/halves.h"
#include "engine/kernels/kernels.h"

namespace dsj::kernels {
namespace {

/// e^x to about 1 ulp: x = n ln2 + r, |r| <= ln2/2, a polynomial in r, 2^n by the exponent bits.
inline float fast_exp(float x) {
  x = x < -87.3f ? -87.3f : (x > 88.3f ? 88.3f : x);
  const float n = std::floor(x * 1.44269504088896341f + 0.5f);
  float r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t power = (static_cast<int32_t>(n) + 127) << 23;
  return p * std::bit_cast<float>(power);
}

inline constexpr int kLanes = 16;

/// Sum of f(i) over n, in kLanes fp32 lanes, then by a fixed tree.
template <typename F>
inline float lane_sum(int64_t n, F f) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int k = 0; k < kLanes; ++k) lanes[k] += f(i + k);
  }
  for (int k = 0; i < n; ++i, ++k) lanes[k] += f(i);
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int k = 0; k < width; ++k) lanes[k] += lanes[k + width];
  }
  return lanes[0];
}

template <typename T>
T* row_of(const Rows& rows, int64_t row) {
  return static_cast<T*>(rows.data) + row * rows.stride;
}

// ---- a kernel<T>() per operation of kernels.h, of element type T

template <typename T>
void kernel(const RmsNorm& op, int64_t begin, int64_t end) {
  const int64_t width = op.x.width;
  const T* const w = row_of<T>(op.w, 0);
  for (int64_t row = begin; row < end; ++row) {
    const T* const x = row_of<T>(op.x, row);
    T* const y = row_of<T>(op.y, row);
    const float sum = lane_sum(width, [&](int64_t i) { return load(x, i) * load(x, i); });
    const float scale = 1.0f / std::sqrt(sum / static_cast<float>(width) + op.eps);
    op.rstd[row] = scale;
    for (int64_t i = 0; i < width; ++i) store(y, i, load(w, i) * round_to<T>(load(x, i) * scale));
  }
}

template <typename T>
void kernel(const RmsNormBackward& op, int64_t begin, int64_t end) {
  const int64_t width = op.x.width;
  const T* const w = row_of<T>(op.w, 0);
  float* const dw = row_of<float>(op.dw, 0);
  for (int64_t row = begin; row < end; ++row) {
    const T* const dy = row_of<T>(op.dy, row);
    const T* const x = row_of<T>(op.x, row);
    T* const dx = row_of<T>(op.dx, row);
    const float scale = op.rstd[row];
    const float dot = lane_sum(width, [&](int64_t i) {
      return round_to<T>(load(dy, i) * load(w, i)) * (load(x, i) * scale);
    });
    const float mean = dot / static_cast<float>(width);
    for (int64_t i = 0; i < width; ++i) {
      const float normed = load(x, i) * scale;
      const float dnormed = round_to<T>(load(dy, i) * load(w, i));
      dw[i] += load(dy, i) * round_to<T>(normed);
      store(dx, i, load(dx, i) + round_to<T>(scale * (dnormed - normed * mean)));
    }
  }
}

template <typename T>
void kernel(const LayerNorm& op, int64_t begin, int64_t end) {
  const int64_t width = op.x.width;
  const T* const w = row_of<T>(op.w, 0);
  const T* const b = row_of<T>(op.b, 0);
  for (int64_t row = begin; row < end; ++row) {
    const T* const x = row_of<T>(op.x, row);
    T* const y = row_of<T>(op.y, row);
    const auto n = static_cast<float>(width);
    const float center = lane_sum(width, [&](int64_t i) { return load(x, i); }) / n;
    const float sum = lane_sum(width, [&](int64_t i) {
      const float d = load(x, i) - center;
      return d * d;
    });
    const float scale = 1.0f / std::sqrt(sum / n + op.eps);
    op.mean[row] = center;
    op.rstd[row] = scale;
    for (int64_t i = 0; i < width; ++i) {
      store(y, i, (load(x, i) - center) * scale * load(w, i) + load(b, i));
    }
  }
}

template <typename T>
void kernel(const LayerNormBackward& op, int64_t begin, int64_t end) {
  const int64_t width = op.x.width;
  const T* const w = row_of<T>(op.w, 0);
  float* const dw = row_of<float>(op.dw, 0);
  float* const db = row_of<float>(op.db, 0);
  for (int64_t row = begin; row < end; ++row) {
    const T* const dy = row_of<T>(op.dy, row);
    const T* const x = row_of<T>(op.x, row);
    T* const dx = row_of<T>(op.dx, row);
    const float center = op.mean[row], scale = op.rstd[row], n = static_cast<float>(width);
    const float sum = lane_sum(width, [&](int64_t i) { return load(dy, i) * load(w, i); }) / n;
    const float dot = lane_sum(width,
                               [&](int64_t i) {
                                 return load(dy, i) * load(w, i) * ((load(x, i) - center) * scale);
                               }) /
                      n;
    for (int64_t i = 0; i < width; ++i) {
      const float normed = (load(x, i) - center) * scale, d = load(dy, i);
      dw[i] += d * normed;
      db[i] += d;
      store(dx, i, load(dx, i) + round_to<T>(scale * (d * load(w, i) - sum - normed * dot)));
    }
  }
}

template <typename T>
void kernel(const Rope& op, int64_t begin, int64_t end) {
  const int64_t half = op.dim / 2;
  const float sign = op.sign;
  for (int64_t row = begin; row < end; ++row) {
    const float* const c = op.cos.data() + op.positions[row] * half;
    const float* const s = op.sin.data() + op.positions[row] * half;
    for (int64_t head = 0; head < op.heads; ++head) {
      T* const lo = row_of<T>(op.x, row) + head * op.dim;
      T* const hi = lo + half;
      for (int64_t i = 0; i < half; ++i) {
        const float a = load(lo, i), b = load(hi, i), si = sign * s[i];
        store(lo, i, round_to<T>(a * c[i]) + round_to<T>(-b * si));
        store(hi, i, round_to<T>(b * c[i]) + round_to<T>(a * si));
      }
    }
  }
}

template <typename T>
void kernel(const Swiglu& op, int64_t begin, int64_t end) {
  const int64_t width = op.a.width;
  for (int64_t row = begin; row < end; ++row) {
    const T* const gate = row_of<T>(op.gate_up, row);
    const T* const up = gate + width;
    T* const a = row_of<T>(op.a, row);
    for (int64_t i = 0; i < width; ++i) {
      const float g = load(gate, i);
      store(a, i, round_to<T>(g / (1.0f + fast_exp(-g))) * load(up, i));
    }
  }
}

template <typename T>
void kernel(const SwigluBackward& op, int64_t begin, int64_t end) {
  const int64_t width = op.da.width;
  for (int64_t row = begin; row < end; ++row) {
    const T* const da = row_of<T>(op.da, row);
    T* const gate = row_of<T>(op.gate_up, row);
    T* const up = gate + width;
// gate and up do not overlap, but may be too close for the compiler's overlap check.
#pragma GCC ivdep
    for (int64_t i = 0; i < width; ++i) {
      const float g = load(gate, i), u = load(up, i), d = load(da, i);
      const float sigmoid = 1.0f / (1.0f + fast_exp(-g));
      store(gate, i, round_to<T>(d * u) * sigmoid * (1.0f + g * (1.0f - sigmoid)));
      store(up, i, d * round_to<T>(g * sigmoid));
    }
  }
}

inline constexpr float kGeluScale = 0.79788456080286536f;  // sqrt(2 / pi)
inline constexpr float kGeluCube = 0.044715f;

template <typename T>
void kernel(const GeluNew& op, int64_t begin, int64_t end) {
  const T* const x = row_of<T>(op.x, 0);
  T* const y = row_of<T>(op.y, 0);
  for (int64_t i = begin; i < end; ++i) {
    const float v = load(x, i);
    const float cube = round_to<T>(kGeluCube * round_to<T>(round_to<T>(v * v) * v));
    const float inner = round_to<T>(kGeluScale * round_to<T>(v + cube));
    // 1 + tanh u = 2 sigmoid(2u)
    const float tanh = round_to<T>(2.0f / (1.0f + fast_exp(-2.0f * inner)) - 1.0f);
    store(y, i, round_to<T>(0.5f * v) * round_to<T>(1.0f + tanh));
  }
}

template <typename T>
void kernel(const GeluNewBackward& op, int64_t begin, int64_t end) {
  const T* const dy = row_of<T>(op.dy, 0);
  T* const x = row_of<T>(op.x, 0);
  for (int64_t i = begin; i < end; ++i) {
    const float v = load(x, i);
    const float inner = kGeluScale * (v + kGeluCube * v * v * v);
    const float slope = kGeluScale * (1.0f + 3.0f * kGeluCube * v * v);
    const float sigmoid = 1.0f / (1.0f + fast_exp(-2.0f * inner));
    store(x, i, load(dy, i) * sigmoid * (1.0f + 2.0f * v * (1.0f - sigmoid) * slope));
  }
}

template <typename T>
void kernel(const CrossEntropy& op, int64_t begin, int64_t end) {
  const int64_t width = op.logits.width;
  double loss = 0;
  for (int64_t row = begin; row < end; ++row) {
    T* const logits = row_of<T>(op.logits, row);
    const int64_t label = op.labels[row];
    float peaks[kLanes];
    for (int k = 0; k < kLanes; ++k) peaks[k] = -INFINITY;
    int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes) {
      for (int k = 0; k < kLanes; ++k) {
        const float value = load(logits, i + k);
        peaks[k] = value > peaks[k] ? value : peaks[k];
      }
    }
    float peak = -INFINITY;
    for (; i < width; ++i) peak = load(logits, i) > peak ? load(logits, i) : peak;
    for (const float value : peaks) peak = value > peak ? value : peak;
    const float sum = lane_sum(width, [&](int64_t j) { return fast_exp(load(logits, j) - peak); });
    // The loss must be NaN if any logit is. The maximum above skips NaN; the sum does not.
    const float target = load(logits, label);
    loss += std::log(sum) + peak - target;
    const float inverse = op.scale / sum;
    for (int64_t j = 0; j < width; ++j) {
      store(logits, j, fast_exp(load(logits, j) - peak) * inverse);
    }
    const float probability = std::exp(target - peak) / sum;
    store(logits, label, (probability - 1.0f) * op.scale);
  }
  *op.loss += loss;
}

template <typename T>
void kernel(const AddRows& op, int64_t begin, int64_t end) {
  constexpr int64_t kBlock = 256;
  T* const out = row_of<T>(op.out, 0);
  for (int64_t first = begin; first < end; first += kBlock) {
    const int64_t n = end - first < kBlock ? end - first : kBlock;
    float sums[kBlock];
    for (int64_t i = 0; i < n; ++i) sums[i] = load(out, first + i);
    for (const int64_t which : op.rows) {
      const T* const row = row_of<T>(op.x, which) + first;
      for (int64_t i = 0; i < n; ++i) sums[i] += load(row, i);
    }
    for (int64_t i = 0; i < n; ++i) store(out, first + i, sums[i]);
  }
}

template <typename T>
void kernel(const SumOfSquares& op, int64_t begin, int64_t end) {
  double total = 0;
  for (int64_t first = begin; first < end; first += 4096) {
    const int64_t count = end - first < 4096 ? end - first : 4096;
    const T* const block = row_of<T>(op.x, 0) + first;
    total += lane_sum(count, [&](int64_t i) { return load(block, i) * load(block, i); });
  }
  *op.sum += total;
}

// ---- updates: in steps whose intermediate results stay in L1

/// Elements of a step: its loops have a fixed length. (Software prefetching made updates slower
/// than the CPU's own.)
inline constexpr int64_t kUpdateStep = 64;

// Functions that a step calls are always inlined: a call, or a length that is not a constant, would
// cost as much as the step.
#define DSJ_INLINE __attribute__((always_inline))

/// Calls f with a null pointer that carries the element type.
template <typename F>
DSJ_INLINE inline void with_type(Type type, F f) {
  if (type == Type::F32) return f(static_cast<float*>(nullptr));
  if (type == Type::BF16) return f(static_cast<Bf16*>(nullptr));
  f(static_cast<Half*>(nullptr));
}

/// wide[0..n) = from[0..n) * scale.
template <typename T>
DSJ_INLINE inline void widen(const T* from, int64_t n, float scale, float* __restrict wide) {
  int64_t first = 0;
#ifdef __F16C__
  if constexpr (std::is_same_v<T, Half>) {
    first = n - n % kHalves;
    widen_halves(from, first, scale, wide);
  }
#endif
#pragma GCC ivdep
  for (int64_t i = first; i < n; ++i) wide[i] = load(from, i) * scale;
}

/// to[0..n) = wide[0..n), rounded.
template <typename T>
DSJ_INLINE inline void narrow(const float* wide, int64_t n, T* __restrict to) {
  int64_t first = 0;
#ifdef __F16C__
  if constexpr (std::is_same_v<T, Half>) {
    first = n - n % kHalves;
    narrow_halves(wide, first, to);
  }
#endif
#pragma GCC ivdep
  for (int64_t i = first; i < n; ++i) store(to, i, wide[i]);
}

/// out[0..n) = the span's gradient from `first` on, times scale.
template <typename T>
DSJ_INLINE inline void scaled_gradient(const Span& span, int64_t first, int64_t n, float scale,
                                       float* out) {
  widen(static_cast<const T*>(span.grad) + first, n, scale, out);
}
DSJ_INLINE inline void scaled_gradient(const Span& span, int64_t first, int64_t n, float scale,
                                       float* out) {
  with_type(span.grad_type, [&](auto* type) DSJ_INLINE {
    scaled_gradient<std::remove_pointer_t<decltype(type)>>(span, first, n, scale, out);
  });
}

DSJ_INLINE inline void store_low(const Span& span, int64_t first, int64_t n) {
  if (!span.low) return;
  with_type(span.low_type, [&](auto* type) DSJ_INLINE {
    narrow(span.p + first, n, static_cast<decltype(type)>(span.low) + first);
  });
}

/// Up to three states a, b, c. No arguments overlap.
template <typename Rule>
inline void update_step(const Rule& rule, float* __restrict p, const float* __restrict g,
                        float* __restrict a, float* __restrict b, float* __restrict c, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    float s[3] = {0, 0, 0}, value = p[i];
    if constexpr (Rule::kStates > 0) s[0] = a[i];
    if constexpr (Rule::kStates > 1) s[1] = b[i];
    if constexpr (Rule::kStates > 2) s[2] = c[i];
    rule(value, g[i], s);
    p[i] = value;
    if constexpr (Rule::kStates > 0) a[i] = s[0];
    if constexpr (Rule::kStates > 1) b[i] = s[1];
    if constexpr (Rule::kStates > 2) c[i] = s[2];
  }
}

/// Calls f(first, n) for each step; n is the constant kUpdateStep, except in the last step.
template <typename F>
inline void for_steps(int64_t n, F f) {
  int64_t first = 0;
  for (; first + kUpdateStep <= n; first += kUpdateStep)
    f(first, std::integral_constant<int64_t, kUpdateStep>{});
  if (first < n) f(first, n - first);
}

template <typename Rule>
inline constexpr bool kIsLamb = std::is_same_v<Rule, optim::LambElement>;

/// kPlain: an fp32 gradient and no 16-bit copy, so that the loop needs fewer registers.
template <typename Rule, bool kPlain>
void update_all(const Rule own, float grad_scale, const Span& span) {
  constexpr bool kGradient = !kIsLamb<Rule>;  // LAMB's first pass used it
  alignas(64) float grad[kUpdateStep] = {};
  for_steps(span.n, [&](int64_t first, auto n) {
    if constexpr (kGradient && kPlain) scaled_gradient<float>(span, first, n, grad_scale, grad);
    if constexpr (kGradient && !kPlain) scaled_gradient(span, first, n, grad_scale, grad);
    const auto state = [&](int i) { return i < Rule::kStates ? span.states[i] + first : nullptr; };
    update_step(own, span.p + first, grad, state(0), state(1), state(2), n);
    if constexpr (!kPlain) store_low(span, first, n);
  });
}

/// Moves p[0..n) along u, which does not overlap it.
inline void along_step(const optim::LambElement& rule, float* __restrict p,
                       const float* __restrict u, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) rule.along(p[i], u[i]);
}

/// LAMB's second pass with the direction of the first: saves a root and a division per element.
template <bool kPlain>
void lamb_along(const optim::LambElement own, const Span& span) {
  for_steps(span.n, [&](int64_t first, auto n) {
    along_step(own, span.p + first, span.direction + first, n);
    if constexpr (!kPlain) store_low(span, first, n);
  });
}

template <typename Rule>
void update(const void* rule, float grad_scale, const Span& span) {
  const Rule& own = *static_cast<const Rule*>(rule);
  if constexpr (kIsLamb<Rule>) {
    if (span.direction)
      return span.low ? lamb_along<false>(own, span) : lamb_along<true>(own, span);
  }
  if (span.grad_type == Type::F32 && !span.low)
    update_all<Rule, true>(own, grad_scale, span);
  else
    update_all<Rule, false>(own, grad_scale, span);
}

/// Writes the moments, and u of a step. The arguments do not overlap.
inline void lamb_step(const optim::LambMoments& rule, const float* __restrict p,
                      const float* __restrict g, float* __restrict m, float* __restrict v,
                      float* __restrict u, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    float s[2] = {m[i], v[i]};
    u[i] = rule(p[i], g[i], s);
    m[i] = s[0];
    v[i] = s[1];
  }
}

/// Four doubles in a vector.
using Doubles = double __attribute__((vector_size(32)));

/// sums += the squares of x[0..4). (GCC generates more instructions for a widening loop.)
DSJ_INLINE inline void add_squares(Doubles& sums, const float* x) {
#ifdef __AVX__
  const Doubles wide = _mm256_cvtps_pd(_mm_loadu_ps(x));
#else
  const Doubles wide = {x[0], x[1], x[2], x[3]};
#endif
  sums += wide * wide;
}

/// Sums of squares in eight lanes of double.
struct Squares {
  Doubles lanes[2] = {};
  void add(const float* x, int64_t n) {
    Doubles low = lanes[0], high = lanes[1];
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
      add_squares(low, x + i);
      add_squares(high, x + i + 4);
    }
    lanes[0] = low;
    lanes[1] = high;
    for (int k = 0; i + k < n; ++k) lanes[k / 4][k % 4] += double{x[i + k]} * x[i + k];
  }
  void take(double* sum) {
    for (Doubles& four : lanes) {
      for (int k = 0; k < 4; ++k) *sum += four[k];
      four = Doubles{};
    }
  }
};

template <typename Gradient>
void lamb_moments_of(const optim::LambMoments own, float grad_scale, const Span& span,
                     double* sums) {
  constexpr int64_t kBlock = 1024;  // the lanes are summed after each: this decides the sum's bits
  alignas(64) float grad[kUpdateStep], u[kUpdateStep];
  Squares of_p, of_u;
  for_steps(span.n, [&](int64_t first, auto n) {
    scaled_gradient<Gradient>(span, first, n, grad_scale, grad);
    lamb_step(own, span.p + first, grad, span.states[0] + first, span.states[1] + first, u, n);
    if (span.direction) narrow(u, n, span.direction + first);
    of_p.add(span.p + first, n);
    of_u.add(u, n);
    if ((first + n) % kBlock != 0 && first + n < span.n) return;
    of_p.take(sums);
    of_u.take(sums + 1);
  });
}

template <typename... Rules>
struct Updates {
  static constexpr void (*kAll[])(const void*, float, const Span&) = {update<Rules>...};
};

/// The element type of an operation.
template <typename Op>
Type type_of(const Op& op) {
  if constexpr (requires { op.x; })
    return op.x.type;
  else if constexpr (requires { op.gate_up; })
    return op.gate_up.type;
  else
    return op.logits.type;
}

class Own final : public Table {
 public:
  constexpr explicit Own(const char* isa) : Table(isa) {}
#define DSJ_KERNEL(Op)                                                                             \
  void run(const Op& op, int64_t begin, int64_t end) const override {                              \
    with_type(type_of(op),                                                                         \
              [&](auto* type) { kernel<std::remove_pointer_t<decltype(type)>>(op, begin, end); }); \
  }
  DSJ_CPU_OPERATIONS(DSJ_KERNEL)
#undef DSJ_KERNEL
  void update(size_t which, const void* rule, float grad_scale, const Span& span) const override {
    optim::ElementRules::As<Updates>::kAll[which](rule, grad_scale, span);
  }
  void lamb_moments(const optim::LambMoments& rule, float grad_scale, const Span& span,
                    double* sums) const override {
    with_type(span.grad_type, [&](auto* type) {
      lamb_moments_of<std::remove_pointer_t<decltype(type)>>(rule, grad_scale, span, sums);
    });
  }
};

}  // namespace

#define DSJ_KERNELS_NAME2(isa) table_##isa
#define DSJ_KERNELS_NAME(isa) DSJ_KERNELS_NAME2(isa)
#define DSJ_KERNELS_TEXT2(isa) #isa
#define DSJ_KERNELS_TEXT(isa) DSJ_KERNELS_TEXT2(isa)
static constinit const Own own(DSJ_KERNELS_TEXT(DSJ_KERNELS_ISA));
extern const Table& DSJ_KERNELS_NAME(DSJ_KERNELS_ISA);
constinit const Table& DSJ_KERNELS_NAME(DSJ_KERNELS_ISA) = own;

}  // namespace dsj::kernels
