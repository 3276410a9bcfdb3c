// The kernels' one text, compiled once per instruction set: each kernels_*.cc defines
// DSJ_KERNELS_ISA and includes it. Loops are written for the compiler's vectoriser: no calls, no
// branches on data, fixed-size lanes for sums.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/kernels/kernels.h"

namespace dsj::kernels {
namespace {

inline float load(const float* p, int64_t i) {
  return p[i];
}
inline float load(const Bf16* p, int64_t i) {
  return std::bit_cast<float>(static_cast<uint32_t>(p[i].bits) << 16);
}
/// Round to nearest even; NaN stays NaN.
inline uint16_t bf16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<uint16_t>(value != value ? 0x7fc0u : rounded);
}
inline void store(float* p, int64_t i, float value) {
  p[i] = value;
}
inline void store(Bf16* p, int64_t i, float value) {
  p[i].bits = bf16_bits(value);
}
template <typename T>
inline float round_to(float value);
template <>
inline float round_to<float>(float value) {
  return value;
}
template <>
inline float round_to<Bf16>(float value) {
  return std::bit_cast<float>(static_cast<uint32_t>(bf16_bits(value)) << 16);
}

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

/// Sum of f(i) over n in kLanes fp32 lanes, then a fixed tree.
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
void rms_norm(const T* x, const T* w, T* y, float* rstd, int64_t rows, int64_t width, float eps) {
  for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
    const float sum = lane_sum(width, [&](int64_t i) { return load(x, i) * load(x, i); });
    const float scale = 1.0f / std::sqrt(sum / static_cast<float>(width) + eps);
    rstd[row] = scale;
    for (int64_t i = 0; i < width; ++i) store(y, i, load(w, i) * round_to<T>(load(x, i) * scale));
  }
}

template <typename T>
void rms_norm_backward(const T* dy, const T* x, const T* w, const float* rstd, T* dx,
                       float* dw_partial, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, x += width, dy += width, dx += width) {
    const float scale = rstd[row];
    const float dot = lane_sum(width, [&](int64_t i) {
      return round_to<T>(load(dy, i) * load(w, i)) * (load(x, i) * scale);
    });
    const float mean = dot / static_cast<float>(width);
    for (int64_t i = 0; i < width; ++i) {
      const float normed = load(x, i) * scale;
      const float dnormed = round_to<T>(load(dy, i) * load(w, i));
      dw_partial[i] += load(dy, i) * round_to<T>(normed);
      store(dx, i, load(dx, i) + round_to<T>(scale * (dnormed - normed * mean)));
    }
  }
}

template <typename T>
void rope(T* x, int64_t row_stride, const float* cos, const float* sin, int64_t first_row,
          int64_t rows, int64_t seq, int64_t heads, int64_t dim, float sign) {
  const int64_t half = dim / 2;
  for (int64_t row = 0; row < rows; ++row) {
    const float* c = cos + (first_row + row) % seq * half;
    const float* s = sin + (first_row + row) % seq * half;
    for (int64_t head = 0; head < heads; ++head) {
      T* lo = x + row * row_stride + head * dim;
      T* hi = lo + half;
      for (int64_t i = 0; i < half; ++i) {
        const float a = load(lo, i), b = load(hi, i), si = sign * s[i];
        store(lo, i, round_to<T>(a * c[i]) + round_to<T>(-b * si));
        store(hi, i, round_to<T>(b * c[i]) + round_to<T>(a * si));
      }
    }
  }
}

template <typename T>
void swiglu(const T* gate_up, T* a, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, a += width) {
    const T* up = gate_up + width;
    for (int64_t i = 0; i < width; ++i) {
      const float g = load(gate_up, i);
      store(a, i, round_to<T>(g / (1.0f + fast_exp(-g))) * load(up, i));
    }
  }
}

template <typename T>
void swiglu_backward(const T* da, T* gate_up, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, da += width) {
    T* up = gate_up + width;
    for (int64_t i = 0; i < width; ++i) {
      const float g = load(gate_up, i), u = load(up, i), d = load(da, i);
      const float sigmoid = 1.0f / (1.0f + fast_exp(-g));
      store(gate_up, i, round_to<T>(d * u) * sigmoid * (1.0f + g * (1.0f - sigmoid)));
      store(up, i, d * round_to<T>(g * sigmoid));
    }
  }
}

template <typename T>
double cross_entropy(T* logits, const int64_t* labels, int64_t rows, int64_t width, float scale) {
  double loss = 0;
  for (int64_t row = 0; row < rows; ++row, logits += width) {
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
    // A NaN anywhere must show in the loss: the maximum above skips it, the sum does not.
    const float target = load(logits, labels[row]);
    loss += std::log(sum) + peak - target;
    const float inverse = scale / sum;
    for (int64_t j = 0; j < width; ++j) {
      store(logits, j, fast_exp(load(logits, j) - peak) * inverse);
    }
    const float probability = std::exp(target - peak) / sum;
    store(logits, labels[row], (probability - 1.0f) * scale);
  }
  return loss;
}

template <typename T>
double sum_of_squares(const T* x, int64_t n) {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += 4096) {
    const int64_t count = n - begin < 4096 ? n - begin : 4096;
    const T* block = x + begin;
    total += lane_sum(count, [&](int64_t i) { return load(block, i) * load(block, i); });
  }
  return total;
}

template <typename T, bool kDecoupled, bool kCopy>
void adamw_loop(const AdamW& a, float* __restrict p, const T* __restrict grad, float* __restrict m,
                float* __restrict v, Bf16* __restrict p16, int64_t n) {
  const float root = std::sqrt(a.bias_correction2), step = a.lr / a.bias_correction1;
  const float keep = 1.0f - a.lr * a.weight_decay;
  for (int64_t i = 0; i < n; ++i) {
    float g = load(grad, i) * a.grad_scale;
    float value = p[i];
    if constexpr (kDecoupled) {
      value *= keep;
    } else {
      g += a.weight_decay * value;
    }
    const float m1 = m[i] + (1.0f - a.beta1) * (g - m[i]);
    const float v1 = a.beta2 * v[i] + (1.0f - a.beta2) * g * g;
    m[i] = m1;
    v[i] = v1;
    value -= step * m1 / (std::sqrt(v1) / root + a.eps);
    p[i] = value;
    if constexpr (kCopy) store(p16, i, value);
  }
}

template <typename T>
void adamw(const AdamW& args, float* p, const T* grad, float* m, float* v, Bf16* p16, int64_t n) {
  if (args.decoupled) {
    p16 ? adamw_loop<T, true, true>(args, p, grad, m, v, p16, n)
        : adamw_loop<T, true, false>(args, p, grad, m, v, p16, n);
  } else {
    p16 ? adamw_loop<T, false, true>(args, p, grad, m, v, p16, n)
        : adamw_loop<T, false, false>(args, p, grad, m, v, p16, n);
  }
}

template <typename T>
constexpr Typed<T> typed() {
  return {rms_norm<T>,        rms_norm_backward<T>, rope<T>,           swiglu<T>,
          swiglu_backward<T>, cross_entropy<T>,     sum_of_squares<T>, adamw<T>};
}

}  // namespace

#define DSJ_KERNELS_NAME2(isa) table_##isa
#define DSJ_KERNELS_NAME(isa) DSJ_KERNELS_NAME2(isa)
#define DSJ_KERNELS_TEXT2(isa) #isa
#define DSJ_KERNELS_TEXT(isa) DSJ_KERNELS_TEXT2(isa)
extern const Table DSJ_KERNELS_NAME(DSJ_KERNELS_ISA);
const Table DSJ_KERNELS_NAME(DSJ_KERNELS_ISA) = {DSJ_KERNELS_TEXT(DSJ_KERNELS_ISA), typed<float>(),
                                                 typed<Bf16>()};

}  // namespace dsj::kernels
