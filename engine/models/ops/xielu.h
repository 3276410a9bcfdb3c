// The activation xIELU of a layer's MLP (layout::Activation::Xielu), as transformers computes it:
//   x > 0: p x^2 + beta x    else: n (e^min(x, eps) - 1 - x) + beta x
// p = softplus(alpha_p) and n = beta + softplus(alpha_n) are trained; beta and eps are buffers of
// the unit. It works in fp32 and rounds once.
// Tested by: tests/engine/models/xielu_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/zero/model_state.h"

namespace dsj::models {

/// The elementwise function's parameters alpha_p, alpha_n, beta, eps [1], on x's device.
struct XieluNumbers {
  at::Tensor alpha_p, alpha_n, beta, eps;
};
/// In x's shape and type.
at::Tensor xielu(const at::Tensor& x, const XieluNumbers& numbers);
struct XieluGradients {
  at::Tensor alpha_p, alpha_n;  ///< [1] fp32
};
/// x becomes its own gradient.
XieluGradients xielu_backward(const at::Tensor& dy, at::Tensor x, const XieluNumbers& numbers);

/// xIELU of a unit, by the indices of its two parameters.
class Xielu {
 public:
  Xielu(int positive, int negative) : positive_(positive), negative_(negative) {}
  at::Tensor forward(const zero::UnitParameters& p, const at::Tensor& x) const;
  /// x becomes its own gradient. Writes the parameters' gradients.
  void backward(const zero::UnitParameters& p, const at::Tensor& dy, at::Tensor x) const;

 private:
  XieluNumbers numbers_of(const zero::UnitParameters& p) const;
  int positive_, negative_;
};

}  // namespace dsj::models
