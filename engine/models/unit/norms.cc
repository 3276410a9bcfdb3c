#include "engine/models/unit/norms.h"

#include <ATen/ATen.h>

#include "engine/models/ops/factors.h"

namespace dsj::models {
namespace {

using layout::NormKind;

/// The factor on the normed values, in the type of x.
at::Tensor factor(const layout::ModelConfig& config, const at::Tensor& weight,
                  const at::Tensor& x) {
  const bool plus_one =
      config.norm == NormKind::RmsPlusOne || config.norm == NormKind::LayerPlusOne;
  const at::Tensor w = weight.to(x.scalar_type());
  return plus_one ? w.add(1) : w;
}

/// The weight; ones for a LayerNorm without weight.
at::Tensor factor_of(const zero::UnitParameters& p, const layout::ModelConfig& config,
                     const NormAt& at, const at::Tensor& x) {
  if (at.weight < 0) return at::ones({x.size(1)}, x.options());
  const at::Tensor w = factor(config, p.weight(at.weight), x);
  return at.factor == 1 ? w : w.mul(at.factor);
}

/// dw (+)= factor times what `backward` writes into its argument.
template <typename F>
void with_factor(double factor, const at::Tensor& w, const zero::GradView& dw, F backward) {
  if (factor == 1 || !dw.tensor.defined()) return backward(dw.tensor, dw.accumulate);
  const at::Tensor own = at::empty_like(w);
  backward(own, false);
  own.mul_(factor);
  dw.accumulate ? dw.tensor.add_(own) : dw.tensor.copy_(own);
}

/// The bias; zeros for a LayerNorm without bias.
at::Tensor bias_of(const zero::UnitParameters& p, const NormAt& at, const at::Tensor& x) {
  return at.bias >= 0 ? p.weight(at.bias) : at::zeros({x.size(1)}, x.options());
}

}  // namespace

at::Tensor head_norm_weight(const layout::ModelConfig& config, const at::Tensor& weight,
                            const at::Tensor& x) {
  return factor(config, weight, x);
}

ops::Normed norm(const zero::UnitParameters& p, const layout::ModelConfig& config, const NormAt& at,
                 const at::Tensor& x) {
  const at::Tensor wide = rounds_once(config) ? x.to(at::kFloat) : x;
  const at::Tensor w = factor_of(p, config, at, wide);
  ops::Normed normed = config.rms() ? ops::rms_norm(wide, w, config.norm_eps)
                                    : ops::layer_norm(wide, w, bias_of(p, at, x), config.norm_eps);
  normed.y = normed.y.to(x.scalar_type());
  return normed;
}

void norm_backward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                   const NormAt& at, const at::Tensor& dy, const at::Tensor& x,
                   const ops::Normed& normed, at::Tensor dx) {
  const at::Tensor wide = rounds_once(config) ? x.to(at::kFloat) : x;
  const at::Tensor w = factor_of(p, config, at, wide);
  const auto dw = at.weight >= 0 ? p.grad(at.weight) : zero::GradView{};
  const bool apart = wide.scalar_type() != dx.scalar_type();
  const at::Tensor sum = apart ? at::zeros_like(wide) : dx;
  if (config.rms()) {
    with_factor(at.factor, w, dw, [&](const at::Tensor& into, bool accumulate) {
      ops::rms_norm_backward(as_read(dy, wide), wide, w, normed.rstd, sum, into, accumulate);
    });
  } else {
    const at::Tensor db = at.bias >= 0 ? p.grad(at.bias).tensor : at::Tensor();
    ops::layer_norm_backward(as_read(dy, wide), wide, w, normed, sum, dw.tensor, db, dw.accumulate);
  }
  if (apart) dx.add_(sum);
}

}  // namespace dsj::models
