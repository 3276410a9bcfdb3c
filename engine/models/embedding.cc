#include <ATen/ATen.h>

#include "engine/models/unit.h"

namespace dsj::models {

at::Tensor embedding_forward(const zero::UnitParameters& p, const at::Tensor& ids) {
  return p.weight(0).index_select(0, ids.reshape({-1}));
}

void embedding_backward(const zero::UnitParameters& p, const at::Tensor& ids,
                        const at::Tensor& dx) {
  auto grad = p.grad(0);
  if (!grad.tensor.defined()) return;
  if (!grad.accumulate) grad.tensor.zero_();
  grad.tensor.index_add_(0, ids.reshape({-1}), dx);
}

}  // namespace dsj::models
