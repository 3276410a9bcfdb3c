#include "engine/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <ranges>

#include "common/check.h"
#include "engine/optim/element_rules.h"

namespace dsj::optim {
namespace {

template <size_t kIndex = 0>
constexpr bool has_rule(OptimizerKind kind) {
  if constexpr (kIndex < std::variant_size_v<Rule>)
    return std::variant_alternative_t<kIndex, Rule>::kKind == kind || has_rule<kIndex + 1>(kind);
  return false;
}

/// Muon's rule is AdamW's, for the parameters that AdamW updates.
constexpr OptimizerKind rule_kind(OptimizerKind kind) {
  return kind == OptimizerKind::Muon ? OptimizerKind::Adam : kind;
}

/// Optimizers that communicate have phases instead, each with another optimizer's rule (one_bit.h).
constexpr bool needs_rule(const dsconfig::Optimizer& one) {
  return one.refusal.empty() && !one.communicates;
}
static_assert(std::ranges::all_of(dsconfig::kOptimizers | std::views::filter(needs_rule),
                                  [](const auto& one) {
                                    return has_rule(rule_kind(one.defaults.kind));
                                  }),
              "every optimizer that is built has a rule of its kind");

template <size_t kIndex = 0>
Rule make_rule(const RuleInput& in) {
  if constexpr (kIndex < std::variant_size_v<Rule>) {
    using One = std::variant_alternative_t<kIndex, Rule>;
    return One::kKind == rule_kind(in.config.kind) ? One::of(in) : make_rule<kIndex + 1>(in);
  }
  DSJ_CHECK(false, "%s has no rule", dsconfig::name_of(in.config).c_str());
}

/// NAdam's mu_n.
double nadam_mu(const RuleInput& in, int64_t n) {
  return in.beta1 * (1 - 0.5 * std::pow(0.96, static_cast<double>(n) * in.config.momentum_decay));
}

/// NAdam's mu_1 * ... * mu_n. It soon underflows to 0, where the loop ends.
double nadam_product(const RuleInput& in, int64_t n) {
  double product = 1;
  for (int64_t t = 1; t <= n && product > 0; ++t) product *= nadam_mu(in, t);
  return product;
}

}  // namespace

NAdamRule NAdamRule::of(const RuleInput& in) {
  const OptimizerConfig& c = in.config;
  const int64_t t = in.updates + 1;
  return {.beta1 = in.beta1,
          .beta2 = in.beta2,
          .eps = c.eps,
          .weight_decay = c.weight_decay,
          .decoupled = c.decoupled_weight_decay,
          .lr = in.lr,
          .correction2 = 1 - std::pow(in.beta2, in.t()),
          .grad_factor = in.lr * (1 - nadam_mu(in, t)) / (1 - nadam_product(in, t)),
          .moment_factor = in.lr * nadam_mu(in, t + 1) / (1 - nadam_product(in, t + 1))};
}

RAdamRule RAdamRule::of(const RuleInput& in) {
  const OptimizerConfig& c = in.config;
  const double t = in.t(), beta1 = in.beta1, beta2 = in.beta2;
  const double correction1 = 1 - std::pow(beta1, t), correction2 = 1 - std::pow(beta2, t);
  const double rho_inf = 2 / (1 - beta2) - 1;
  const double rho = rho_inf - 2 * t * std::pow(beta2, t) / correction2;
  RAdamRule rule{.lr = in.lr,
                 .beta1 = beta1,
                 .beta2 = beta2,
                 .eps = c.eps,
                 .weight_decay = c.weight_decay,
                 .decoupled = c.decoupled_weight_decay,
                 .step = in.lr / correction1,
                 .adaptive = rho > 5};
  if (rule.adaptive)
    rule.step *= std::sqrt(correction2) *
                 std::sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho));
  return rule;
}

/// Uses eta and mu of the previous update, at its rate.
AsgdRule AsgdRule::of(const RuleInput& in) {
  const OptimizerConfig& c = in.config;
  AsgdRule rule{.eta = in.lr, .mu = 1, .lambd = c.lambd, .weight_decay = c.weight_decay};
  if (in.updates == 0) return rule;
  const auto before = static_cast<double>(in.updates);
  rule.eta = in.previous_lr / std::pow(1 + c.lambd * in.previous_lr * before, c.alpha);
  rule.mu = 1 / std::max(1.0, before - c.t0);
  return rule;
}

Update make_update(const OptimizerConfig& config, const Rates& rates, int64_t updates,
                   double grad_scale) {
  const bool muon = config.kind == OptimizerKind::Muon;
  const RuleInput in{.config = config,
                     .lr = muon ? rates.adam_lr.value_or(rates.lr) : rates.lr,
                     .previous_lr = rates.previous_lr,
                     .beta1 = rates.momentum.value_or(config.beta1),
                     .beta2 = rates.beta2.value_or(config.beta2),
                     .momentum = rates.momentum.value_or(config.momentum),
                     .updates = updates};
  return {.rule = make_rule(in),
          .grad_scale = config.maximize ? -grad_scale : grad_scale,
          .first = updates == 0};
}

Update without_decay(Update update) {
  std::visit(
      [](auto& rule) {
        if constexpr (requires { rule.weight_decay; }) rule.weight_decay = 0;
      },
      update.rule);
  return update;
}

bool Update::parameter_sums() const {
  const auto kind = std::visit([](const auto& of) { return of.kKind; }, rule);
  return dsconfig::descriptor_of(kind).parameter_sums;
}

double lamb_coefficient(const LambRule& rule, double parameter_squares, double update_squares) {
  return lamb_coefficient(rule.min_coeff, rule.max_coeff, parameter_squares, update_squares);
}

}  // namespace dsj::optim
