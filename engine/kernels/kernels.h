// The engine's CPU kernels other than matrix products. Plain pointers, torch-free. Each call takes
// a range of rows or elements and is single-threaded: the caller splits the work. There is one
// table per instruction set, chosen at run time.
//
// Sums and transcendental functions are fp32. 16-bit values are rounded where Hugging Face's code
// under PyTorch rounds, after every named operation, so that losses agree. Who calls them, and their
// oracle: port.h.
#pragma once

#include <cstdint>

#include "engine/kernels/port.h"
#include "engine/optim/element_rules.h"

namespace dsj::kernels {

/// Bits of a bfloat16; arithmetic happens in fp32.
struct Bf16 {
  uint16_t bits;
};

/// Bits of an IEEE binary16; arithmetic happens in fp32. Above 65504 it rounds to infinity.
struct Half {
  uint16_t bits;
};

/// Kernels of one element type T. Row-major; strides in elements.
template <typename T>
struct Typed {
  /// y = w * round(x * rstd), with rstd[row] = 1 / sqrt(mean(x^2) + eps) kept in fp32.
  void (*rms_norm)(const T* x, const T* w, T* y, float* rstd, int64_t rows, int64_t width,
                   float eps);
  /// dx += gradient of rms_norm.
  /// dw_partial[width] (fp32) += sum over the rows of dy * round(x * rstd).
  void (*rms_norm_backward)(const T* dy, const T* x, const T* w, const float* rstd, T* dx,
                            float* dw_partial, int64_t rows, int64_t width);
  /// y = (x - mean) * rstd * w + b, rounded once. Each row's mean and rstd are kept in fp32.
  void (*layer_norm)(const T* x, const T* w, const T* b, T* y, float* mean, float* rstd,
                     int64_t rows, int64_t width, float eps);
  /// dx += gradient of layer_norm. dw_partial, db_partial [width] (fp32) += sums over the rows.
  void (*layer_norm_backward)(const T* dy, const T* x, const T* w, const float* mean,
                              const float* rstd, T* dx, float* dw_partial, float* db_partial,
                              int64_t rows, int64_t width);
  /// Rotates `heads` heads of size `dim` in each row, in place, by row positions[n] of cos and sin
  /// [.., dim/2]. sign -1: the gradient.
  void (*rope)(T* x, int64_t row_stride, const float* cos, const float* sin,
               const int64_t* positions, int64_t rows, int64_t heads, int64_t dim, float sign);
  /// a[row, i] = round(silu(g)) * u with g = gate_up[row, i], u = gate_up[row, width + i].
  void (*swiglu)(const T* gate_up, T* a, int64_t rows, int64_t width);
  /// gate_up becomes its own gradient.
  void (*swiglu_backward)(const T* da, T* gate_up, int64_t rows, int64_t width);
  /// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), rounded after each operation.
  void (*gelu_new)(const T* x, T* y, int64_t n);
  /// x becomes dy times the derivative, rounded once.
  void (*gelu_new_backward)(const T* dy, T* x, int64_t n);
  /// logits become scale * (softmax - one hot(label)). Returns the sum over rows of
  /// -log softmax[label].
  double (*cross_entropy)(T* logits, const int64_t* labels, int64_t rows, int64_t width,
                          float scale);
  /// out [width] += the rows x[rows[0]], x[rows[1]] ... [.., width], one after the other in fp32;
  /// rounded once.
  void (*add_rows)(const T* x, int64_t row_stride, const int64_t* rows, int64_t count, T* out,
                   int64_t width);
  /// Sum of squares: fp32 lanes over each 4096 elements, double above. Calls that split at
  /// multiples of 4096 give the same sum.
  double (*sum_of_squares)(const T* x, int64_t n);
};

/// Applies a rule of optim::ElementRules to a span; `rule` points to one. Its coefficient is in the
/// rule.
using Update = void (*)(const void* rule, float grad_scale, const Span& span);

struct Table {
  const char* isa;  ///< "avx512", "avx2", "baseline"; resume is bit-identical on one isa
  Typed<float> f32;
  Typed<Bf16> bf16;
  Typed<Half> half;
  const Update* updates;  ///< in the order of optim::ElementRules
  /// Adds to sums[0], sums[1] in double; the span's own `sums` are left alone. Writes span.direction,
  /// if there is one; the update takes it from there.
  void (*lamb_moments)(const optim::LambMoments& rule, float grad_scale, const Span& span,
                       double* sums);
};

/// The best table that this processor runs. DSJ_ISA=avx2|baseline asks for a lower one.
const Table& table();
/// The table of that name; nullptr: this processor or build lacks it. For tests.
const Table* table(const char* isa);

}  // namespace dsj::kernels
