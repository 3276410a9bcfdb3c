// A layer's gated causal convolution over a few tokens (layout::ConvConfig), used instead of
// attention: from the hidden state to the input of the output projection, and back. One product
// yields three parts B, C and x per token; the result is C conv(B x), with one filter per column
// and no activation. Rows are independent. All after the product runs in pieces of tokens
// (layout::kConvTokens); backward recomputes it from the product. Roundings are those of
// transformers: each factor is of the products' type, sums over tokens are fp32.
// Tested by: tests/engine/models/short_conv_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/models/unit/projection.h"
#include "engine/models/unit/unit.h"

namespace dsj::models {

class ShortConv {
 public:
  explicit ShortConv(const layout::ModelConfig& config);
  /// h [N, H], normed → [N, H], in h's type. Sets `products` [N, 3 H], which backward needs.
  at::Tensor forward(const zero::UnitParameters& p, const at::Tensor& h, const RowBounds& rows,
                     DropoutKey key, at::Tensor& products) const;
  /// dout: gradient of forward's result. Writes the parameters' gradients; returns that of h.
  at::Tensor backward(const zero::UnitParameters& p, const at::Tensor& dout, const at::Tensor& h,
                      const RowBounds& rows, const at::Tensor& products, DropoutKey key) const;
  /// Inference. Rows that do not begin at position 0 continue from the cache: the inputs of the
  /// filter of earlier tokens, [rows, kernel - 1, H], which is updated.
  at::Tensor forward_cached(const zero::UnitParameters& p, const at::Tensor& h,
                            const RowBounds& rows, const at::Tensor& cache) const;

 private:
  /// The filters [kernel, H], fp32, rounded to the products' type.
  at::Tensor filters(const zero::UnitParameters& p) const;

  const int64_t kernel_, hidden_;
  Projection in_;
  int weight_ = -1;
};

}  // namespace dsj::models
