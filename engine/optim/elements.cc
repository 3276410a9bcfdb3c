#include "engine/optim/elements.h"

#include <cmath>

#include "common/check.h"

namespace dsj::optim {
namespace {

float fp32(double value) {
  return static_cast<float>(value);
}

/// g += decay * p, p *= keep: the two ways of weight decay.
struct Decay {
  float decay, keep;
};
Decay decay_of(double weight_decay, bool decoupled, double lr) {
  if (decoupled) return {0, fp32(1 - lr * weight_decay)};
  return {fp32(weight_decay), 1};
}

Moments moments_of(double beta1, double beta2) {
  return {fp32(1 - beta1), fp32(beta2), fp32(1 - beta2)};
}

LambDirection direction_of(const LambRule& r) {
  return {fp32(r.eps), fp32(r.weight_decay), r.eps_inside_sqrt};
}

template <bool kMomentum, bool kCentered>
ElementRule rmsprop(const RMSpropRule& r) {
  return RMSpropElement<kMomentum, kCentered>{fp32(r.weight_decay), fp32(r.lr),  fp32(r.alpha),
                                              fp32(1 - r.alpha),    fp32(r.eps), fp32(r.momentum)};
}

/// One function for each rule.
struct Make {
  const Update& update;
  const int states;

  ElementRule operator()(const AdamRule& r) const {
    const auto [decay, keep] = decay_of(r.weight_decay, r.decoupled, r.lr);
    return AdamElement{decay,
                       keep,
                       moments_of(r.beta1, r.beta2),
                       fp32(std::sqrt(r.correction2)),
                       fp32(r.lr / r.correction1),
                       fp32(r.eps)};
  }
  ElementRule operator()(const SgdRule& r) const {
    if (states == 0) return SgdElement{fp32(r.weight_decay), fp32(r.lr)};
    return MomentumElement{fp32(r.weight_decay),  fp32(r.lr), fp32(r.momentum),
                           fp32(1 - r.dampening), r.nesterov, update.first};
  }
  ElementRule operator()(const AdagradRule& r) const {
    return AdagradElement{fp32(r.weight_decay), fp32(r.lr), fp32(r.eps)};
  }
  ElementRule operator()(const RMSpropRule& r) const {
    const bool momentum = states > (r.centered ? 2 : 1);
    if (momentum) return r.centered ? rmsprop<true, true>(r) : rmsprop<true, false>(r);
    return r.centered ? rmsprop<false, true>(r) : rmsprop<false, false>(r);
  }
  ElementRule operator()(const LionRule& r) const {
    return LionElement{fp32(1 - r.lr * r.weight_decay),
                       fp32(r.lr),
                       fp32(r.beta1),
                       fp32(1 - r.beta1),
                       fp32(r.beta2),
                       fp32(1 - r.beta2)};
  }
  ElementRule operator()(const LambRule& r) const {
    return LambElement{r.lr, direction_of(r), fp32(r.lr)};
  }
  ElementRule operator()(const AdadeltaRule& r) const {
    return AdadeltaElement{fp32(r.weight_decay), fp32(r.lr), fp32(r.rho), fp32(1 - r.rho),
                           fp32(r.eps)};
  }
  ElementRule operator()(const AdamaxRule& r) const {
    return AdamaxElement{fp32(r.weight_decay), fp32(r.lr), fp32(1 - r.beta1), fp32(r.beta2),
                         fp32(r.eps)};
  }
  ElementRule operator()(const NAdamRule& r) const {
    const auto [decay, keep] = decay_of(r.weight_decay, r.decoupled, r.lr);
    return NAdamElement{decay,
                        keep,
                        moments_of(r.beta1, r.beta2),
                        fp32(r.correction2),
                        fp32(r.eps),
                        fp32(r.grad_factor),
                        fp32(r.moment_factor)};
  }
  ElementRule operator()(const RAdamRule& r) const {
    const auto [decay, keep] = decay_of(r.weight_decay, r.decoupled, r.lr);
    return RAdamElement{decay,        keep,        moments_of(r.beta1, r.beta2),
                        fp32(r.step), fp32(r.eps), r.adaptive};
  }
  ElementRule operator()(const AsgdRule& r) const {
    return AsgdElement{fp32(r.weight_decay), fp32(1 - r.lambd * r.eta), fp32(r.eta), fp32(r.mu)};
  }
  ElementRule operator()(const RpropRule& r) const {
    return RpropElement{fp32(r.lr),       fp32(r.eta_minus), fp32(r.eta_plus),
                        fp32(r.step_min), fp32(r.step_max),  update.first};
  }
};

}  // namespace

ElementRule element_rule(const Update& update, int states) {
  const ElementRule rule = std::visit(Make{update, states}, update.rule);
  const int kept = std::visit([](const auto& one) { return one.kStates; }, rule);
  DSJ_CHECK(kept <= states, "a rule of %d states for %d vectors", kept, states);
  return rule;
}

LambMoments lamb_moments(const LambRule& rule) {
  return {moments_of(rule.beta1, rule.beta2), direction_of(rule)};
}

}  // namespace dsj::optim
