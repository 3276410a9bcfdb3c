#include "engine/models/unit/expert_adapter.h"

#include <ATen/ATen.h>

#include "engine/models/ops/gemm.h"

namespace dsj::models {

ExpertAdapter::ExpertAdapter(const zero::UnitParameters& p, int weight)
    : p_(p), adapter_(p.adapter(weight)) {
  if (adapter_ == nullptr) return;
  const int64_t experts = adapter_->experts, rank = adapter_->rank;
  a_ = p.weight(adapter_->a).view({experts, rank, -1});
  b_ = p.weight(adapter_->b).view({-1, rank, experts}).permute({2, 0, 1}).contiguous();
}

void ExpertAdapter::forward(int64_t expert, const at::Tensor& x, const at::Tensor& out) const {
  if (adapter_ == nullptr) return;
  at::Tensor z = at::empty({x.size(0), adapter_->rank}, x.options());
  gemm::linear(z, x, a_.select(0, expert));
  z.mul_(adapter_->scaling);
  at::Tensor update = at::empty(out.sizes(), out.options());
  gemm::linear(update, z, b_.select(0, expert));
  out.add_(update);
}

void ExpertAdapter::begin_backward() {
  if (adapter_ == nullptr) return;
  a_grad_ = p_.grad(adapter_->a);
  a_grad_.zero_if_new();
  a_grad_.accumulate = true;
  b_grad_ = p_.grad(adapter_->b);
  b_grads_ = at::zeros(b_.sizes(), b_grad_.tensor.options());
}

void ExpertAdapter::backward(int64_t expert, const at::Tensor& gradient, const at::Tensor& x,
                             const at::Tensor& dx) {
  if (adapter_ == nullptr) return;
  const at::Tensor dy = gradient.to(x.scalar_type());
  const at::Tensor a = a_.select(0, expert), b = b_.select(0, expert);
  at::Tensor z = at::empty({x.size(0), adapter_->rank}, x.options());
  gemm::linear(z, x, a);
  z.mul_(adapter_->scaling);
  gemm::grad_weight({b_grads_.select(0, expert), /*accumulate=*/false, b_grad_.part}, dy, z);
  gemm::grad_input(z, dy, b, /*accumulate=*/false);
  z.mul_(adapter_->scaling);
  zero::GradView grad = a_grad_;
  grad.tensor = grad.tensor.narrow(0, expert * adapter_->rank, adapter_->rank);
  gemm::grad_weight(grad, z, x);
  gemm::grad_input(dx, z, a, /*accumulate=*/true);
}

void ExpertAdapter::finish_backward() {
  if (adapter_ == nullptr) return;
  const at::Tensor all = b_grad_.tensor.view({-1, adapter_->rank, adapter_->experts});
  const at::Tensor own = b_grads_.permute({1, 2, 0});
  b_grad_.accumulate ? all.add_(own) : all.copy_(own);
  b_grads_.reset();
}

}  // namespace dsj::models
