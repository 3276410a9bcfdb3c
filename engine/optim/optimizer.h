// The rules: the numbers of one update of each kind of optimizer. The host computes them from the
// update count, the rate and the momentum (of), and converts them to the formula for one element
// (element_rules.h) in fp32 (element): doubles are combined first and rounded once, as in PyTorch.
// job/dsconfig/config/optimizers.h describes an optimizer's other properties. Pure, torch-free. Formulas:
// PyTorch 2.11's torch.optim; DeepSpeed 0.19's Lion and LAMB.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <variant>

#include "engine/optim/element_rules.h"
#include "job/dsconfig/config/optimizers.h"

namespace dsj::optim {

using dsconfig::OptimizerConfig;
using dsconfig::OptimizerKind;
using dsconfig::states_of;
using dsconfig::StateSpec;

/// The inputs of a rule.
struct RuleInput {
  const OptimizerConfig& config;
  double lr, previous_lr;  ///< Rates
  double beta1, beta2;     ///< the config's, or the schedule's
  double momentum;         ///< the config's, or the schedule's
  int64_t updates;         ///< number of earlier updates

  /// t: this update's number, from 1.
  double t() const { return static_cast<double>(updates + 1); }
  /// 1 - beta^t, or 1 without bias correction.
  double correction1() const { return config.bias_correction ? 1 - std::pow(beta1, t()) : 1; }
  double correction2() const { return config.bias_correction ? 1 - std::pow(beta2, t()) : 1; }
};

using ElementRule = ElementRules::As<std::variant>;

/// The inputs of an element rule besides the rule's numbers.
struct ElementInput {
  int states;  ///< vectors of the parameter; a schedule may set a momentum of 0
  bool first;  ///< update number 1
};

inline float fp32(double value) {
  return static_cast<float>(value);
}
/// The two ways of weight decay: g += decay * p, p *= keep.
struct Decay {
  float decay, keep;
};
inline Decay decay_of(double weight_decay, bool decoupled, double lr) {
  if (decoupled) return {0, fp32(1 - lr * weight_decay)};
  return {fp32(weight_decay), 1};
}
inline Moments moments_of(double beta1, double beta2) {
  return {fp32(1 - beta1), fp32(beta2), fp32(1 - beta2)};
}

// ---- the rules. p: parameter, g: gradient, t: the update's number, from 1. Weight decay is
// g += weight_decay * p, unless the rule is `decoupled` or says otherwise. of() makes the rule of
// the descriptors with its kind; the descriptor's states are named as below.

/// m += (1-beta1)(g - m)
/// v = beta2 v + (1-beta2) g^2
/// p -= lr/correction1 * m / (sqrt(v)/sqrt(correction2) + eps)
/// decoupled: first p *= 1 - lr*weight_decay. States: exp_avg m, exp_avg_sq v.
struct AdamRule {
  double lr, beta1, beta2, eps, weight_decay;
  bool decoupled;
  double correction1, correction2;  ///< 1 - beta^t, or 1 without bias correction

  static constexpr OptimizerKind kKind = OptimizerKind::Adam;
  static AdamRule of(const RuleInput& in) {
    const OptimizerConfig& c = in.config;
    return {in.lr,
            in.beta1,
            in.beta2,
            c.eps,
            c.weight_decay,
            c.decoupled_weight_decay,
            in.correction1(),
            in.correction2()};
  }
  ElementRule element(const ElementInput&) const {
    const auto [decay, keep] = decay_of(weight_decay, decoupled, lr);
    return AdamElement{decay,
                       keep,
                       moments_of(beta1, beta2),
                       fp32(std::sqrt(correction2)),
                       fp32(lr / correction1),
                       fp32(eps)};
  }
};

/// b = momentum b + (1-dampening) g; the first update: b = g
/// p -= lr * (nesterov ? g + momentum b : b); without momentum: p -= lr g
/// State: momentum_buffer b (none without momentum).
struct SgdRule {
  double lr, momentum, dampening, weight_decay;
  bool nesterov;

  static constexpr OptimizerKind kKind = OptimizerKind::Sgd;
  static SgdRule of(const RuleInput& in) {
    const OptimizerConfig& c = in.config;
    return {in.lr, in.momentum, c.dampening, c.weight_decay, c.nesterov};
  }
  ElementRule element(const ElementInput& in) const {
    if (in.states == 0) return SgdElement{fp32(weight_decay), fp32(lr)};
    return MomentumElement{fp32(weight_decay),  fp32(lr), fp32(momentum),
                           fp32(1 - dampening), nesterov, in.first};
  }
};

/// s += g^2
/// p -= lr/(1 + (t-1) lr_decay) * g / (sqrt(s) + eps); `lr` holds the whole factor
/// State: sum s.
struct AdagradRule {
  double lr, eps, weight_decay;

  static constexpr OptimizerKind kKind = OptimizerKind::Adagrad;
  static AdagradRule of(const RuleInput& in) {
    const OptimizerConfig& c = in.config;
    return {in.lr / (1 + (in.t() - 1) * c.lr_decay), c.eps, c.weight_decay};
  }
  ElementRule element(const ElementInput&) const {
    return AdagradElement{fp32(weight_decay), fp32(lr), fp32(eps)};
  }
};

/// s = alpha s + (1-alpha) g^2
/// a = sqrt(s) + eps; centered: mean += (1-alpha)(g - mean), a = sqrt(s - mean^2) + eps
/// p -= lr g/a; with momentum: b = momentum b + g/a, p -= lr b
/// States: square_avg s, then momentum_buffer b and grad_avg mean where they are used.
struct RMSpropRule {
  double lr, alpha, eps, weight_decay, momentum;
  bool centered;

  static constexpr OptimizerKind kKind = OptimizerKind::RMSprop;
  static RMSpropRule of(const RuleInput& in) {
    const OptimizerConfig& c = in.config;
    return {in.lr, c.alpha, c.eps, c.weight_decay, in.momentum, c.centered};
  }
  ElementRule element(const ElementInput& in) const {
    const bool keeps_momentum = in.states > (centered ? 2 : 1);
    if (keeps_momentum) return centered ? form<true, true>() : form<true, false>();
    return centered ? form<false, true>() : form<false, false>();
  }
  template <bool kMomentum, bool kCentered>
  ElementRule form() const {
    return RMSpropElement<kMomentum, kCentered>{fp32(weight_decay), fp32(lr),  fp32(alpha),
                                                fp32(1 - alpha),    fp32(eps), fp32(momentum)};
  }
};

/// c = beta1 m + (1-beta1) g
/// p = p (1 - lr*weight_decay) - lr * sign(c), with sign(0) = 1 as in DeepSpeed's kernels
/// m = beta2 m + (1-beta2) g
/// State: exp_avg m.
struct LionRule {
  double lr, beta1, beta2, weight_decay;

  static constexpr OptimizerKind kKind = OptimizerKind::Lion;
  static LionRule of(const RuleInput& in) {
    return {in.lr, in.beta1, in.beta2, in.config.weight_decay};
  }
  ElementRule element(const ElementInput&) const {
    return LionElement{fp32(1 - lr * weight_decay),
                       fp32(lr),
                       fp32(beta1),
                       fp32(1 - beta1),
                       fp32(beta2),
                       fp32(1 - beta2)};
  }
};

/// m, v as Adam's
/// u = m / (sqrt(v) + eps) + weight_decay p; eps_inside_sqrt: m / sqrt(v + eps) instead
/// p -= lr * c * u, with c = lamb_coefficient() of the whole parameter
/// `lr` holds the bias corrections: sqrt(1-beta2^t) / (1-beta1^t). States: exp_avg m, exp_avg_sq v.
struct LambRule {
  double lr, beta1, beta2, eps, weight_decay, min_coeff, max_coeff;
  bool eps_inside_sqrt;

  static constexpr OptimizerKind kKind = OptimizerKind::Lamb;
  static LambRule of(const RuleInput& in) {
    const OptimizerConfig& c = in.config;
    return {in.lr * std::sqrt(in.correction2()) / in.correction1(),
            in.beta1,
            in.beta2,
            c.eps,
            c.weight_decay,
            c.min_coeff,
            c.max_coeff,
            c.eps_inside_sqrt};
  }
  ElementRule element(const ElementInput&) const { return LambElement{lr, direction(), fp32(lr)}; }
  LambDirection direction() const { return {fp32(eps), fp32(weight_decay), eps_inside_sqrt}; }
};

/// s = rho s + (1-rho) g^2
/// d = sqrt(a + eps) / sqrt(s + eps) * g
/// a = rho a + (1-rho) d^2
/// p -= lr d
/// States: square_avg s, acc_delta a.
struct AdadeltaRule {
  double lr, rho, eps, weight_decay;

  static constexpr OptimizerKind kKind = OptimizerKind::Adadelta;
  static AdadeltaRule of(const RuleInput& in) {
    const OptimizerConfig& c = in.config;
    return {in.lr, c.rho, c.eps, c.weight_decay};
  }
  ElementRule element(const ElementInput&) const {
    return AdadeltaElement{fp32(weight_decay), fp32(lr), fp32(rho), fp32(1 - rho), fp32(eps)};
  }
};

/// m += (1-beta1)(g - m)
/// n = max(beta2 n, |g| + eps)
/// p -= lr/(1-beta1^t) * m/n; `lr` holds the factor
/// States: exp_avg m, exp_inf n.
struct AdamaxRule {
  double lr, beta1, beta2, eps, weight_decay;

  static constexpr OptimizerKind kKind = OptimizerKind::Adamax;
  static AdamaxRule of(const RuleInput& in) {
    const OptimizerConfig& c = in.config;
    return {in.lr / (1 - std::pow(in.beta1, in.t())), in.beta1, in.beta2, c.eps, c.weight_decay};
  }
  ElementRule element(const ElementInput&) const {
    return AdamaxElement{fp32(weight_decay), fp32(lr), fp32(1 - beta1), fp32(beta2), fp32(eps)};
  }
};

/// mu_t = beta1 (1 - 0.5 * 0.96^(t momentum_decay)), M_t = mu_1 ... mu_t
/// m, v as Adam's; d = sqrt(v/correction2) + eps
/// p -= grad_factor g/d + moment_factor m/d, with
/// grad_factor = lr (1-mu_t)/(1-M_t), moment_factor = lr mu_{t+1}/(1-M_{t+1})
/// States: exp_avg m, exp_avg_sq v.
struct NAdamRule {
  double beta1, beta2, eps, weight_decay;
  bool decoupled;
  double lr, correction2, grad_factor, moment_factor;

  static constexpr OptimizerKind kKind = OptimizerKind::NAdam;
  static NAdamRule of(const RuleInput& in);
  ElementRule element(const ElementInput&) const {
    const auto [decay, keep] = decay_of(weight_decay, decoupled, lr);
    return NAdamElement{decay,
                        keep,
                        moments_of(beta1, beta2),
                        fp32(correction2),
                        fp32(eps),
                        fp32(grad_factor),
                        fp32(moment_factor)};
  }
};

/// m, v as Adam's
/// adaptive (rho_t > 5): p -= step * m / (sqrt(v) + eps),
///                       step = lr/correction1 * sqrt(correction2) * rectification
/// else: p -= lr/correction1 * m
/// States: exp_avg m, exp_avg_sq v.
struct RAdamRule {
  double lr, beta1, beta2, eps, weight_decay;
  bool decoupled;
  double step;
  bool adaptive;

  static constexpr OptimizerKind kKind = OptimizerKind::RAdam;
  static RAdamRule of(const RuleInput& in);
  ElementRule element(const ElementInput&) const {
    const auto [decay, keep] = decay_of(weight_decay, decoupled, lr);
    return RAdamElement{decay, keep, moments_of(beta1, beta2), fp32(step), fp32(eps), adaptive};
  }
};

/// p = p (1 - lambd eta) - eta g
/// ax += mu (p - ax); eta and mu are those that the previous update left
/// State: ax, the average.
struct AsgdRule {
  double eta, mu, lambd, weight_decay;

  static constexpr OptimizerKind kKind = OptimizerKind::Asgd;
  static AsgdRule of(const RuleInput& in);
  ElementRule element(const ElementInput&) const {
    return AsgdElement{fp32(weight_decay), fp32(1 - lambd * eta), fp32(eta), fp32(mu)};
  }
};

/// s *= eta_plus, eta_minus or 1, by the sign of g*prev, clamped to [step_min, step_max]
/// g = 0 where the sign turned
/// p -= sign(g) s; prev = g
/// No weight decay. States: prev, step_size s (lr before the first update).
struct RpropRule {
  double lr, eta_minus, eta_plus, step_min, step_max;

  static constexpr OptimizerKind kKind = OptimizerKind::Rprop;
  static RpropRule of(const RuleInput& in) {
    const OptimizerConfig& c = in.config;
    return {in.lr, c.eta_minus, c.eta_plus, c.step_min, c.step_max};
  }
  ElementRule element(const ElementInput& in) const {
    return RpropElement{fp32(lr),       fp32(eta_minus), fp32(eta_plus),
                        fp32(step_min), fp32(step_max),  in.first};
  }
};

using Rule = std::variant<AdamRule, SgdRule, AdagradRule, RMSpropRule, LionRule, LambRule,
                          AdadeltaRule, AdamaxRule, NAdamRule, RAdamRule, AsgdRule, RpropRule>;

/// The numbers of one optimizer update; the same for every element.
struct Update {
  Rule rule;
  double grad_scale = 1;  ///< on the gradient: averaging, loss scale, clipping, maximize
  bool first = false;     ///< update number 1

  /// Whether it needs sums over whole parameters first, by the rule's descriptor.
  bool parameter_sums() const;
};

/// The rates of a step, from rates_at() in lr_schedule.h.
struct Rates {
  double lr = 0;
  double previous_lr = 0;          ///< of the previous update; lr at the first one
  std::optional<double> momentum;  ///< of the schedule: Adam's beta1, SGD's momentum
  std::optional<double> beta2;     ///< OneCycle writes both betas
  std::optional<double> adam_lr;   ///< Muon: AdamW's rate; unset means lr
};

/// `updates`: number of earlier updates. Not for 1-bit optimizers (one_bit.h). For Muon: the update
/// of the parameters that AdamW updates (engine/zero/methods/methods.h). Pure.
Update make_update(const OptimizerConfig& config, const Rates& rates, int64_t updates,
                   double grad_scale);

/// The same update for parameters without weight decay.
Update without_decay(Update update);

/// LAMB's trust coefficient: ||p|| / ||u||, clamped; 1 if either norm is 0. Takes the sums of
/// squares of a whole parameter and of its u.
double lamb_coefficient(const LambRule& rule, double parameter_squares, double update_squares);

}  // namespace dsj::optim
