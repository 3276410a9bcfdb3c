#include "engine/optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace dsj::optim {
namespace {

using dsconfig::OptimizerConfig;
using dsconfig::OptimizerKind;

/// NAdam's mu_1 * ... * mu_n. It soon underflows to 0, where the loop ends.
double momentum_product(const OptimizerConfig& c, double beta1, int64_t n) {
  double product = 1;
  for (int64_t t = 1; t <= n && product > 0; ++t)
    product *= beta1 * (1 - 0.5 * std::pow(0.96, static_cast<double>(t) * c.momentum_decay));
  return product;
}

NAdamRule nadam(const OptimizerConfig& c, double lr, double beta1, double beta2, int64_t t) {
  const double product = momentum_product(c, beta1, t);
  const double next_product = momentum_product(c, beta1, t + 1);
  const auto mu = [&](int64_t n) {
    return beta1 * (1 - 0.5 * std::pow(0.96, static_cast<double>(n) * c.momentum_decay));
  };
  return {.beta1 = beta1,
          .beta2 = beta2,
          .eps = c.eps,
          .weight_decay = c.weight_decay,
          .decoupled = c.decoupled_weight_decay,
          .lr = lr,
          .correction2 = 1 - std::pow(beta2, static_cast<double>(t)),
          .grad_factor = lr * (1 - mu(t)) / (1 - product),
          .moment_factor = lr * mu(t + 1) / (1 - next_product)};
}

RAdamRule radam(const OptimizerConfig& c, double lr, double beta1, double beta2, double t) {
  const double correction1 = 1 - std::pow(beta1, t), correction2 = 1 - std::pow(beta2, t);
  const double rho_inf = 2 / (1 - beta2) - 1;
  const double rho = rho_inf - 2 * t * std::pow(beta2, t) / correction2;
  RAdamRule rule{.lr = lr,
                 .beta1 = beta1,
                 .beta2 = beta2,
                 .eps = c.eps,
                 .weight_decay = c.weight_decay,
                 .decoupled = c.decoupled_weight_decay,
                 .step = lr / correction1,
                 .adaptive = rho > 5};
  if (rule.adaptive)
    rule.step *= std::sqrt(correction2) *
                 std::sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho));
  return rule;
}

/// eta and mu are those that the previous update left, at its rate.
AsgdRule asgd(const OptimizerConfig& c, const Rates& rates, int64_t updates) {
  AsgdRule rule{.eta = rates.lr, .mu = 1, .lambd = c.lambd, .weight_decay = c.weight_decay};
  if (updates == 0) return rule;
  const auto before = static_cast<double>(updates);
  rule.eta = rates.previous_lr / std::pow(1 + c.lambd * rates.previous_lr * before, c.alpha);
  rule.mu = 1 / std::max(1.0, before - c.t0);
  return rule;
}

Rule make_rule(const OptimizerConfig& c, const Rates& rates, int64_t updates) {
  const double lr = rates.lr, t = static_cast<double>(updates + 1);
  const double beta1 = rates.momentum.value_or(c.beta1), beta2 = rates.beta2.value_or(c.beta2);
  const double momentum = rates.momentum.value_or(c.momentum);
  const double correction1 = c.bias_correction ? 1 - std::pow(beta1, t) : 1;
  const double correction2 = c.bias_correction ? 1 - std::pow(beta2, t) : 1;
  switch (c.kind) {
    case OptimizerKind::Adam:
      return AdamRule{lr,          beta1,          beta2,
                      c.eps,       c.weight_decay, c.decoupled_weight_decay,
                      correction1, correction2};
    case OptimizerKind::Sgd:
      return SgdRule{lr, momentum, c.dampening, c.weight_decay, c.nesterov};
    case OptimizerKind::Adagrad:
      return AdagradRule{lr / (1 + (t - 1) * c.lr_decay), c.eps, c.weight_decay};
    case OptimizerKind::RMSprop:
      return RMSpropRule{lr, c.alpha, c.eps, c.weight_decay, momentum, c.centered};
    case OptimizerKind::Lion:
      return LionRule{lr, beta1, beta2, c.weight_decay};
    case OptimizerKind::Lamb:
      return LambRule{lr * std::sqrt(correction2) / correction1,
                      beta1,
                      beta2,
                      c.eps,
                      c.weight_decay,
                      c.min_coeff,
                      c.max_coeff,
                      c.eps_inside_sqrt};
    case OptimizerKind::Adadelta:
      return AdadeltaRule{lr, c.rho, c.eps, c.weight_decay};
    case OptimizerKind::Adamax:
      return AdamaxRule{lr / (1 - std::pow(beta1, t)), beta1, beta2, c.eps, c.weight_decay};
    case OptimizerKind::NAdam:
      return nadam(c, lr, beta1, beta2, updates + 1);
    case OptimizerKind::RAdam:
      return radam(c, lr, beta1, beta2, t);
    case OptimizerKind::Asgd:
      return asgd(c, rates, updates);
    case OptimizerKind::Rprop:
      return RpropRule{lr, c.eta_minus, c.eta_plus, c.step_min, c.step_max};
  }
  DSJ_CHECK(false);
}

}  // namespace

bool needs_parameter_norms(const OptimizerConfig& config) {
  return config.kind == OptimizerKind::Lamb;
}

Update make_update(const OptimizerConfig& config, const Rates& rates, int64_t updates,
                   double grad_scale) {
  return {.rule = make_rule(config, rates, updates),
          .grad_scale = config.maximize ? -grad_scale : grad_scale,
          .first = updates == 0};
}

double lamb_coefficient(const LambRule& rule, double parameter_squares, double update_squares) {
  if (parameter_squares == 0 || update_squares == 0) return 1;
  return std::max(rule.min_coeff,
                  std::min(rule.max_coeff, std::sqrt(parameter_squares / update_squares)));
}

}  // namespace dsj::optim
