// The model's matrix products; gradients are written in place. A product's type is that of its
// activations: a wider weight (torch_autocast) is narrowed for it, and its gradient stays wide. In
// fp16 that gradient is rounded to fp16 before it is added up, as torch's autograd writes it: beyond
// 65,504 it is infinite, so that steps are skipped where torch skips them. Parts of a gradient
// (zero::GradView) are not rounded: their sum is. A product is libtorch's or the engine's own
// (engine/device/products.h). Either sums in fp32 and rounds once, with the bias or what is added
// to; they differ in the order of the sum.
// No weight is ever widened as a whole. Scratch is counted as buckets.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/zero/flat.h"

namespace dsj::models::gemm {

/// A weight as products of `type` read it; where it has another type, a copy, counted as buckets.
at::Tensor as_factor(const at::Tensor& w, at::ScalarType type);

/// out [n, o] = x [n, i] w[o, i]^T + bias [o] (bias may be undefined). `out` may be a column slice
/// of a larger tensor.
void linear(at::Tensor out, const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias = {});
/// residual [n, o] + x w^T in the residual's type; the product is rounded to x's type before, as the
/// modelling code does.
at::Tensor linear_add(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& w);
/// out [n, i] (+)= dy [n, o] w [o, i].
void grad_input(at::Tensor out, const at::Tensor& dy, const at::Tensor& w, bool accumulate);
/// grad [o, i] (+)= dy [n, o]^T x [n, i].
void grad_weight(const zero::GradView& grad, const at::Tensor& dy, const at::Tensor& x);
/// grad [o] (+)= sum over rows of dy [n, o].
void grad_bias(const zero::GradView& grad, const at::Tensor& dy);

/// A weight's gradient that is a sum of several products, one after the other. A 16-bit gradient
/// would round after each, and stop growing where a product is small beside it: what rounding takes
/// away is kept in a second 16-bit matrix and counts in the next sum. An fp32 gradient of fp16
/// products is summed in fp32, and rounded to fp16 after the last.
class WeightSum {
 public:
  /// `grad` [o, i]; undefined (frozen): add() does nothing. `type`: of the products. `products`: how
  /// many there will be, exactly.
  WeightSum(zero::GradView grad, at::ScalarType type, int64_t products);
  /// Adds dy [n, o]^T x [n, i].
  void add(const at::Tensor& dy, const at::Tensor& x);

 private:
  void add_wide(const at::Tensor& dy, const at::Tensor& x);
  zero::GradView grad_;
  int64_t left_;     ///< products
  at::Tensor lost_;  ///< undefined in fp32, and for one product
  at::Tensor wide_;  ///< fp16 products: their sum; grad_'s own tensor where that was empty
};

/// Whether this tensor's device has units for its type. DSJ_NATIVE_BF16=0 turns bf16's off on the
/// CPU.
bool native(const at::Tensor& tensor);

}  // namespace dsj::models::gemm
