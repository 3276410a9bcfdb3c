// LoRA on one projection of all experts of a layer (layout::Adapter::experts). Each expert has its own
// rows of A and columns of B, so that it multiplies its tokens by them, as by its base weight: no
// expert's product B A is ever made. Without dropout, as in PEFT.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/zero/model_state.h"

namespace dsj::models {

class ExpertAdapter {
 public:
  /// `weight`: the index of the projection's first weight. Without an adapter there, no call has an
  /// effect. It lives for one pass over the unit's gathered parameters.
  ExpertAdapter(const zero::UnitParameters& p, int weight);

  /// out [n, out] += s x A_e^T B_e^T for the tokens x [n, in] of one expert.
  void forward(int64_t expert, const at::Tensor& x, const at::Tensor& out) const;

  /// Once before the backward passes of the experts, which write each its slice of the gradients.
  void begin_backward();
  /// dy [n, out] in any type, x [n, in]. Adds to dx [n, in], which has x's type.
  void backward(int64_t expert, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& dx);
  /// Once after them: writes B's gradient, 0 for experts without tokens.
  void finish_backward();

 private:
  zero::UnitParameters p_;
  const layout::Adapter* adapter_ = nullptr;
  at::Tensor a_, b_;  ///< [experts, r, in], a view; [experts, out, r], a copy
  zero::GradView a_grad_, b_grad_;
  at::Tensor b_grads_;  ///< [experts, out, r] in the type of B's gradient
};

}  // namespace dsj::models
