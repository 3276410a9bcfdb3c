// A layer's Mamba 2 mixer (layout::DeltaConfig::mamba), used instead of attention. As the gated delta
// rule (delta.h), whose pieces, states and cache it has: values, keys and queries go through a
// causal convolution and SiLU, and the rule carries a state along each row, here without a
// correction. A step softplus(dt) per token and head is the value's factor and, times -exp(A_log), the
// logarithm of the state's decay. D times the value is added to the result; SiLU of a gate multiplies
// it, and an RMS norm over groups of columns follows. Roundings are those of transformers' own code.
// Tested by: tests/engine/models/mamba_test.cc
#pragma once

#include "engine/models/mixers/delta.h"

namespace dsj::models {

class MambaMixer : public DeltaMixer {
 public:
  using DeltaMixer::DeltaMixer;

 private:
  struct Scan;
  Scan scan(const at::Tensor& products, const at::Tensor& conv, const Piece& piece,
            const Weights& weights) const;
  void forward_piece(const at::Tensor& products, const at::Tensor& conv, const Piece& piece,
                     const Weights& weights, const at::Tensor& state,
                     const at::Tensor& out) const override;
  void backward_piece(const at::Tensor& products, const at::Tensor& dout, const Piece& piece,
                      const Weights& weights, const at::Tensor& state, const at::Tensor& dstate,
                      const at::Tensor& dproducts, Sums& sums) const override;
};

}  // namespace dsj::models
