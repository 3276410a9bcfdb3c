#include "engine/models/ops/xielu.h"

#include <ATen/ATen.h>

namespace dsj::models {

at::Tensor xielu(const at::Tensor& x, const XieluNumbers& numbers) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor above = (wide * wide).mul_(at::softplus(numbers.alpha_p));
  const at::Tensor below = at::minimum(wide, numbers.eps)
                               .expm1_()
                               .sub_(wide)
                               .mul_(numbers.beta + at::softplus(numbers.alpha_n));
  return at::where(wide > 0, above, below).addcmul_(wide, numbers.beta).to(x.scalar_type());
}

namespace {

/// The gradient of alpha from that of its softplus.
at::Tensor through_softplus(const at::Tensor& gradient, const at::Tensor& alpha) {
  return at::softplus_backward(gradient.view({1}), alpha, 1, 20);
}

}  // namespace

XieluGradients xielu_backward(const at::Tensor& dy, at::Tensor x, const XieluNumbers& numbers) {
  const at::Tensor wide = x.to(at::kFloat), d = dy.to(at::kFloat);
  const at::Tensor negative = wide <= 0;
  const at::Tensor low = at::minimum(wide, numbers.eps);
  XieluGradients gradients;
  gradients.alpha_p =
      through_softplus((wide * wide).masked_fill_(negative, 0).mul_(d).sum(), numbers.alpha_p);
  gradients.alpha_n =
      through_softplus(low.expm1().sub_(wide).masked_fill_(negative.logical_not(), 0).mul_(d).sum(),
                       numbers.alpha_n);
  const at::Tensor below = low.exp()
                               .masked_fill_(wide > numbers.eps, 0)
                               .sub_(1)
                               .mul_(numbers.beta + at::softplus(numbers.alpha_n));
  const at::Tensor above = (wide * 2).mul_(at::softplus(numbers.alpha_p));
  x.copy_(at::where(negative, below, above).add_(numbers.beta).mul_(d));
  return gradients;
}

XieluNumbers Xielu::numbers_of(const zero::UnitParameters& p) const {
  return {.alpha_p = p.weight(positive_).to(at::kFloat),
          .alpha_n = p.weight(negative_).to(at::kFloat),
          .beta = p.buffer(0),
          .eps = p.buffer(1)};
}

at::Tensor Xielu::forward(const zero::UnitParameters& p, const at::Tensor& x) const {
  return xielu(x, numbers_of(p));
}

void Xielu::backward(const zero::UnitParameters& p, const at::Tensor& dy, at::Tensor x) const {
  const XieluGradients gradients = xielu_backward(dy, std::move(x), numbers_of(p));
  const auto write = [&](int parameter, const at::Tensor& gradient) {
    const auto grad = p.grad(parameter);
    if (!grad.tensor.defined()) return;
    grad.accumulate ? grad.tensor.add_(gradient) : grad.tensor.copy_(gradient);
  };
  write(positive_, gradients.alpha_p);
  write(negative_, gradients.alpha_n);
}

}  // namespace dsj::models
