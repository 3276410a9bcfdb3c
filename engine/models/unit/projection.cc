#include "engine/models/unit/projection.h"

#include <ATen/ATen.h>

#include <numeric>

#include "engine/models/ops/factors.h"
#include "engine/models/ops/gemm.h"
#include "engine/models/unit/adapters.h"

namespace dsj::models {
namespace {

/// The weight as [out, in], independent of how it is stored.
at::Tensor oriented(const Projection& projection, const at::Tensor& weight) {
  const at::Tensor one = projection.slice < 0 ? weight : weight.select(0, projection.slice);
  return projection.transposed ? one.t() : one;
}

void grad_weight(const Projection& projection, const zero::GradView& grad, const at::Tensor& dy,
                 const at::Tensor& x) {
  if (!grad.tensor.defined()) return;  // frozen
  zero::GradView one = grad;
  if (projection.slice >= 0) one.tensor = grad.tensor.select(0, projection.slice);
  if (projection.transposed) {
    gemm::grad_weight(one, x, dy);
  } else {
    gemm::grad_weight(one, dy, x);
  }
}

/// Calls f with the gradient of `count` neighbours together if they are adjacent, else with each.
template <typename F>
void each_gradient(const zero::UnitParameters& p, int first, int count, F f) {
  const auto all = p.trained(first) ? p.stacked_grad(first, count) : zero::GradView{};
  if (all.tensor.defined()) return f(all);
  for (int i = 0; i < count; ++i) f(p.grad(first + i));
}

void bias_backward(const zero::UnitParameters& p, const Projection& projection,
                   const at::Tensor& dy) {
  const int count = static_cast<int>(projection.sizes.size());
  bool all = true;
  for (int i = 0; i < count; ++i) all = all && p.trained(projection.bias + i);
  if (projection.slice >= 0) {
    auto one = p.grad(projection.bias);
    if (!one.tensor.defined()) return;
    one.tensor = one.tensor.select(0, projection.slice);
    return gemm::grad_bias(one, dy);
  }
  if (const auto grad = all ? p.stacked_grad(projection.bias, count) : zero::GradView{};
      grad.tensor.defined()) {
    return gemm::grad_bias(grad, dy);
  }
  int64_t first = 0;
  for (int i = 0; i < count; first += projection.sizes[i++]) {
    const auto one = p.grad(projection.bias + i);
    if (one.tensor.defined()) gemm::grad_bias(one, dy.narrow(1, first, projection.sizes[i]));
  }
}

}  // namespace

namespace {

at::Tensor project_base(const zero::UnitParameters& p, const Projection& projection,
                        const at::Tensor& x) {
  const int count = static_cast<int>(projection.sizes.size());
  const bool has_bias = projection.bias >= 0;
  at::Tensor out = at::empty({x.size(0), projection.width()}, x.options());
  at::Tensor b = has_bias ? p.stacked_weight(projection.bias, count) : at::Tensor();
  if (b.defined() && projection.slice >= 0) b = b.select(0, projection.slice);
  const at::Tensor w =
      b.defined() == has_bias ? p.stacked_weight(projection.weight, count) : at::Tensor();
  if (w.defined()) {
    gemm::linear(out, x, oriented(projection, w), b);
    return out;
  }
  int64_t first = 0;
  for (int i = 0; i < count; first += projection.sizes[i++]) {
    gemm::linear(out.narrow(1, first, projection.sizes[i]), x,
                 oriented(projection, p.weight(projection.weight + i)),
                 has_bias ? p.weight(projection.bias + i) : at::Tensor());
  }
  return out;
}

}  // namespace

at::Tensor project(const zero::UnitParameters& p, const Projection& projection, const at::Tensor& x,
                   DropoutKey dropout_key) {
  at::Tensor out = project_base(p, projection, x);
  adapters_forward(p, projection, x, dropout_key, out);
  return out;
}

at::Tensor project_add(const zero::UnitParameters& p, const Projection& projection,
                       const at::Tensor& x, const at::Tensor& residual, DropoutKey dropout_key) {
  if (projection.bias >= 0 || has_adapters(p, projection))
    return added(residual, project(p, projection, x, dropout_key));
  return gemm::linear_add(residual, x, oriented(projection, p.weight(projection.weight)));
}

void no_gradient(const zero::UnitParameters& p, const Projection& projection) {
  const int count = static_cast<int>(projection.sizes.size());
  const auto zero_if_new = [](const zero::GradView& grad) { grad.zero_if_new(); };
  each_gradient(p, projection.weight, count, zero_if_new);
  if (projection.bias >= 0) each_gradient(p, projection.bias, count, zero_if_new);
}

namespace {

/// Without the biases and the adapters.
at::Tensor base_backward(const zero::UnitParameters& p, const Projection& projection,
                         const at::Tensor& dy, const at::Tensor& x) {
  const int count = static_cast<int>(projection.sizes.size());
  at::Tensor dx = at::empty_like(x);
  // Neighbours in one flat are all trained or all frozen.
  const at::Tensor w = p.stacked_weight(projection.weight, count);
  const bool trained = p.trained(projection.weight);
  const auto grad =
      w.defined() && trained ? p.stacked_grad(projection.weight, count) : zero::GradView{};
  if (w.defined() && grad.tensor.defined() == trained) {
    grad_weight(projection, grad, dy, x);
    gemm::grad_input(dx, dy, oriented(projection, w), false);
  } else {
    int64_t first = 0;
    for (int i = 0; i < count; first += projection.sizes[i++]) {
      const at::Tensor part = dy.narrow(1, first, projection.sizes[i]);
      grad_weight(projection, p.grad(projection.weight + i), part, x);
      gemm::grad_input(dx, part, oriented(projection, p.weight(projection.weight + i)), i > 0);
    }
  }
  return dx;
}

}  // namespace

at::Tensor project_backward(const zero::UnitParameters& p, const Projection& projection,
                            const at::Tensor& gradient, const at::Tensor& x,
                            DropoutKey dropout_key) {
  const at::Tensor dy = gradient.to(x.scalar_type());
  std::vector<dora::Lengths> lengths;
  const at::Tensor dx =
      base_backward(p, projection, base_gradient(p, projection, dy, dropout_key, lengths), x);
  if (projection.bias >= 0) bias_backward(p, projection, dy);
  adapters_backward(p, projection, dy, x, dropout_key, lengths, dx);
  return dx;
}

}  // namespace dsj::models
