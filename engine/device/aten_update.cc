// The rules of engine/optim/optimizer.h as libtorch operations, in the order written there. This
// second implementation is deliberate: tests compare the kernels' (optim/element_rules.h) with it.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <variant>
#include <vector>

#include "common/check.h"
#include "engine/device/aten_port.h"
#include "engine/optim/optimizer.h"

namespace dsj::device {
namespace {

using namespace optim;  // NOLINT: the rules

constexpr int64_t kPiece = 1 << 22;  ///< elements at a time: bounds the temporaries

/// The operands of a rule. The fp32 gradient is a copy that the rule may change.
struct Elements {
  at::Tensor p, g;
  std::vector<at::Tensor> states;
  bool first;
  at::Tensor coefficient = {};  ///< LAMB's, [1] double; undefined means 1
};

void decay(const Elements& e, double weight_decay) {
  if (weight_decay != 0) e.g.add_(e.p, weight_decay);
}
void decay(const Elements& e, double weight_decay, bool decoupled, double lr) {
  if (!decoupled)
    decay(e, weight_decay);
  else if (weight_decay != 0)
    e.p.mul_(1 - lr * weight_decay);
}
void moments(const Elements& e, double beta1, double beta2) {
  e.states[0].lerp_(e.g, 1 - beta1);
  e.states[1].mul_(beta2).addcmul_(e.g, e.g, 1 - beta2);
}

void apply(const AdamRule& r, const Elements& e) {
  decay(e, r.weight_decay, r.decoupled, r.lr);
  moments(e, r.beta1, r.beta2);
  const at::Tensor denominator = e.states[1].sqrt().div_(std::sqrt(r.correction2)).add_(r.eps);
  e.p.addcdiv_(e.states[0], denominator, -r.lr / r.correction1);
}

void apply(const SgdRule& r, const Elements& e) {
  decay(e, r.weight_decay);
  at::Tensor direction = e.g;
  if (!e.states.empty()) {
    const at::Tensor& buffer = e.states[0];
    if (e.first)
      buffer.copy_(e.g);
    else
      buffer.mul_(r.momentum).add_(e.g, 1 - r.dampening);
    direction = r.nesterov ? e.g.add_(buffer, r.momentum) : buffer;
  }
  e.p.add_(direction, -r.lr);
}

void apply(const AdagradRule& r, const Elements& e) {
  decay(e, r.weight_decay);
  e.states[0].addcmul_(e.g, e.g);
  e.p.addcdiv_(e.g, e.states[0].sqrt().add_(r.eps), -r.lr);
}

void apply(const RMSpropRule& r, const Elements& e) {
  decay(e, r.weight_decay);
  const at::Tensor& squares = e.states[0];
  squares.mul_(r.alpha).addcmul_(e.g, e.g, 1 - r.alpha);
  at::Tensor average = squares;
  if (r.centered) {
    const at::Tensor& mean = e.states.back();
    mean.lerp_(e.g, 1 - r.alpha);
    average = squares.addcmul(mean, mean, -1);
  }
  average = average.sqrt().add_(r.eps);
  if (r.momentum == 0) {
    e.p.addcdiv_(e.g, average, -r.lr);
  } else {
    e.states[1].mul_(r.momentum).addcdiv_(e.g, average);
    e.p.add_(e.states[1], -r.lr);
  }
}

void apply(const LionRule& r, const Elements& e) {
  const at::Tensor& m = e.states[0];
  const at::Tensor direction = m.mul(r.beta1).add_(e.g, 1 - r.beta1);
  if (r.weight_decay != 0) e.p.mul_(1 - r.lr * r.weight_decay);
  e.p.sub_(at::copysign(at::full_like(direction, r.lr), direction));
  m.mul_(r.beta2).add_(e.g, 1 - r.beta2);
}

at::Tensor lamb_direction(const LambRule& r, const at::Tensor& p,
                          const std::vector<at::Tensor>& states) {
  at::Tensor denominator =
      r.eps_inside_sqrt ? states[1].add(r.eps).sqrt_() : states[1].sqrt().add_(r.eps);
  return at::div_out(denominator, states[0], denominator).add_(p, r.weight_decay);
}

/// LAMB's second pass.
void apply(const LambRule& r, const Elements& e) {
  at::Tensor direction = lamb_direction(r, e.p, e.states);
  if (e.coefficient.defined()) direction.mul_(e.coefficient);
  e.p.add_(direction, -r.lr);
}

void apply(const AdadeltaRule& r, const Elements& e) {
  decay(e, r.weight_decay);
  const at::Tensor &squares = e.states[0], &deltas = e.states[1];
  squares.mul_(r.rho).addcmul_(e.g, e.g, 1 - r.rho);
  const at::Tensor delta = deltas.add(r.eps).sqrt_().div_(squares.add(r.eps).sqrt_()).mul_(e.g);
  deltas.mul_(r.rho).addcmul_(delta, delta, 1 - r.rho);
  e.p.add_(delta, -r.lr);
}

void apply(const AdamaxRule& r, const Elements& e) {
  decay(e, r.weight_decay);
  e.states[0].lerp_(e.g, 1 - r.beta1);
  at::Tensor norm = e.states[1];
  at::maximum_out(norm, norm.mul_(r.beta2), e.g.abs_().add_(r.eps));
  e.p.addcdiv_(e.states[0], norm, -r.lr);
}

void apply(const NAdamRule& r, const Elements& e) {
  decay(e, r.weight_decay, r.decoupled, r.lr);
  moments(e, r.beta1, r.beta2);
  const at::Tensor denominator = e.states[1].div(r.correction2).sqrt_().add_(r.eps);
  e.p.addcdiv_(e.g, denominator, -r.grad_factor);
  e.p.addcdiv_(e.states[0], denominator, -r.moment_factor);
}

void apply(const RAdamRule& r, const Elements& e) {
  decay(e, r.weight_decay, r.decoupled, r.lr);
  moments(e, r.beta1, r.beta2);
  if (r.adaptive)
    e.p.addcdiv_(e.states[0], e.states[1].sqrt().add_(r.eps), -r.step);
  else
    e.p.add_(e.states[0], -r.step);
}

void apply(const AsgdRule& r, const Elements& e) {
  decay(e, r.weight_decay);
  e.p.mul_(1 - r.lambd * r.eta).add_(e.g, -r.eta);
  if (r.mu == 1)
    e.states[0].copy_(e.p);
  else
    e.states[0].add_(e.p.sub(e.states[0]).mul_(r.mu));
}

void apply(const RpropRule& r, const Elements& e) {
  const at::Tensor &previous = e.states[0], &step = e.states[1];
  if (e.first) step.fill_(r.lr);
  const at::Tensor turn = e.g.mul(previous).sign_();
  step.mul_(turn.gt(0).mul(r.eta_plus) + turn.lt(0).mul(r.eta_minus) + turn.eq(0))
      .clamp_(r.step_min, r.step_max);
  e.g.masked_fill_(turn.lt(0), 0);
  e.p.addcmul_(e.g.sign(), step, -1);
  previous.copy_(e.g);
}

/// n elements from `first` on, as views.
Elements elements_of(const Update& update, const kernels::Span& span, int64_t first, int64_t n,
                     at::Device on) {
  const auto piece = [&](float* data) {
    return vector_of(std::span(data + first, static_cast<size_t>(n)), on);
  };
  Elements elements{.p = piece(span.p), .g = {}, .states = {}, .first = update.first};
  const kernels::Rows grad{const_cast<void*>(span.grad), span.grad_type, 1, span.n, span.n};
  elements.g = vector_of(grad, on).narrow(0, first, n).to(at::kFloat).mul(update.grad_scale);
  for (int i = 0; i < span.state_count; ++i) elements.states.push_back(piece(span.states[i]));
  return elements;
}

/// Calls f(span, first element, count) tile by tile.
template <typename F>
void for_pieces(kernels::Spans spans, F f) {
  for (const kernels::Span& span : spans)
    for (int64_t first = 0; first < span.n; first += kPiece)
      f(span, first, std::min(kPiece, span.n - first));
}

}  // namespace

void compute(at::Device on, const kernels::UpdateSpans& op) {
  for_pieces(op.spans, [&](const kernels::Span& span, int64_t first, int64_t n) {
    Elements elements = elements_of(*op.update, span, first, n, on);
    if (span.coefficient) elements.coefficient = vector_of(std::span(span.coefficient, 1), on);
    std::visit([&](const auto& rule) { apply(rule, elements); }, op.update->rule);
    if (!span.low) return;
    const kernels::Rows low{span.low, span.low_type, 1, span.n, span.n};
    vector_of(low, on).narrow(0, first, n).copy_(elements.p);
  });
}

void compute(at::Device on, const kernels::LambMoments& op) {
  const auto& rule = std::get<LambRule>(op.update->rule);
  for_pieces(op.spans, [&](const kernels::Span& span, int64_t first, int64_t n) {
    const Elements elements = elements_of(*op.update, span, first, n, on);
    moments(elements, rule.beta1, rule.beta2);
    const auto add = [&](double* sum, const at::Tensor& t) {
      vector_of(std::span(sum, 1), on).add_(t.to(at::kDouble).square().sum());
    };
    add(span.sums, elements.p);
    add(span.sums + 1, lamb_direction(rule, elements.p, elements.states));
  });
}

void compute(at::Device on, const kernels::LambCoefficients& op) {
  const at::Tensor pairs = vector_of(op.sums, on).view({-1, 2});
  const at::Tensor ratio = pairs.select(1, 0).div(pairs.select(1, 1)).sqrt();
  const at::Tensor largest = at::full_like(ratio, op.rule->max_coeff);
  const at::Tensor clamped =
      at::where(ratio < largest, ratio, largest).clamp_min(op.rule->min_coeff);
  vector_of(op.coefficients, on)
      .copy_(at::where(pairs.eq(0).any(1), at::ones_like(ratio), clamped));
}

}  // namespace dsj::device
