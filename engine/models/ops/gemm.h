// The model's matrix products; gradients are written in place. A product has the type of its
// activations: a wider weight (torch_autocast) is narrowed for it, but its gradient stays wide. In
// fp16 that gradient is rounded to fp16 before it is added, as torch's autograd does: beyond 65,504
// it becomes infinite, so that the same steps are skipped as in torch. Parts of a gradient
// (zero::GradView) are not rounded; their sum is. A product is libtorch's or the engine's own
// (engine/device/products.h). Both sum in fp32 and round once, including the bias or the addend;
// the order of summation differs. No weight is ever widened as a whole. Scratch is counted as
// buckets.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/zero/flat/flat.h"

namespace dsj::models::gemm {

/// A weight in `type`, the products' type. If it has another type, a copy, counted as buckets.
at::Tensor as_factor(const at::Tensor& w, at::ScalarType type);

/// out [n, o] = x [n, i] w[o, i]^T + bias [o] (bias may be undefined). `out` may be a column slice
/// of a larger tensor.
void linear(at::Tensor out, const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias = {});
/// residual [n, o] + x w^T in the residual's type. The product is first rounded to x's type, as in
/// the modelling code.
at::Tensor linear_add(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& w);
/// out [n, i] (+)= dy [n, o] w [o, i].
void grad_input(at::Tensor out, const at::Tensor& dy, const at::Tensor& w, bool accumulate);
/// grad [o, i] (+)= dy [n, o]^T x [n, i].
void grad_weight(const zero::GradView& grad, const at::Tensor& dy, const at::Tensor& x);
/// grad [o] (+)= sum over rows of dy [n, o].
void grad_bias(const zero::GradView& grad, const at::Tensor& dy);

/// A weight's gradient that is the sum of several products, computed in sequence. A 16-bit gradient
/// would round after each and stop growing when products are small beside it. So on a CPU the
/// rounding error is kept in a second 16-bit matrix and added to the next sum. On an accelerator the
/// products add to an fp32 sum, which is rounded after the last one. An fp32 gradient of fp16
/// products is summed in fp32 and rounded to fp16 after the last one.
class WeightSum {
 public:
  /// `grad` [o, i]; if undefined (frozen), add() does nothing. `type`: the products' type.
  /// `products`: the exact number of products.
  WeightSum(zero::GradView grad, at::ScalarType type, int64_t products);
  /// Adds dy [n, o]^T x [n, i].
  void add(const at::Tensor& dy, const at::Tensor& x);

 private:
  void add_wide(const at::Tensor& dy, const at::Tensor& x);
  zero::GradView grad_;
  int64_t left_;     ///< remaining products
  at::Tensor lost_;  ///< a CPU's rounding error; undefined in fp32 and for one product
  at::Tensor wide_;  ///< fp32 sum on an accelerator, or of fp16 products; may be grad_'s tensor
};

/// Whether this tensor's device has units for its type. DSJ_NATIVE_BF16=0 turns bf16's off on the
/// CPU.
bool native(const at::Tensor& tensor);

}  // namespace dsj::models::gemm
