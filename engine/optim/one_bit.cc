#include "engine/optim/one_bit.h"

#include <algorithm>

#include "job/dsconfig/config/one_bit_steps.h"

namespace dsj::optim {

namespace {

using dsconfig::OptimizerKind;

/// k of the step with this count. It doubles after `scaler` variance updates, which happen at
/// multiples of k.
int64_t variance_interval(int64_t scaler, int64_t count) {
  int64_t k = 1;
  for (int64_t begin = 1;; k *= 2) {
    const int64_t end = (begin / k + scaler) * k;
    if (count <= end) return k;
    begin = end;
  }
}

}  // namespace

OneBitPhase one_bit_phase(const dsconfig::ResolvedConfig& config, int64_t updates) {
  using enum OneBitPhase;
  const OptimizerConfig& c = config.optimizer;
  const int64_t count = dsconfig::one_bit_count(config, updates);
  if (count == 1) return Discarded;
  if (c.kind != OptimizerKind::ZeroOneAdam)
    return static_cast<double>(count) <= std::max(c.freeze_step, 2.0) ? WarmUp : CompressedMomentum;
  if (count >= dsconfig::first_local_step(c)) return LocalStep;
  const int64_t k = variance_interval(static_cast<int64_t>(c.var_update_scaler), count);
  return count % k == 0 ? WarmUp : CompressedGradient;
}

LocalInterval local_interval(const dsconfig::ResolvedConfig& config, int64_t updates) {
  const OptimizerConfig& c = config.optimizer;
  const int64_t count = dsconfig::one_bit_count(config, updates);
  const int64_t done = count - dsconfig::first_local_step(c);
  if (c.kind != OptimizerKind::ZeroOneAdam || done < 0) return {};
  const auto limit = static_cast<int64_t>(c.local_step_clipper);
  int64_t h = 1;
  for (int64_t left = done / static_cast<int64_t>(c.local_step_scaler); left > 0 && h < limit;
       --left)
    h = std::min(limit, 2 * h);
  return {.first = done == 0, .meets = count % h == 0};
}

Update OneBitUpdate::whole() const {
  if (!lamb) return {.rule = rule, .grad_scale = grad_scale};
  return {.rule = LambRule{.lr = rule.lr,
                           .beta1 = rule.beta1,
                           .beta2 = rule.beta2,
                           .eps = rule.eps,
                           .weight_decay = rule.weight_decay,
                           .min_coeff = lamb->min_coeff,
                           .max_coeff = lamb->max_coeff,
                           .eps_inside_sqrt = false},
          .grad_scale = grad_scale};
}

Update OneBitUpdate::frozen_variance() const {
  Update update = whole();
  std::get<AdamRule>(update.rule).beta2 = 1;
  return update;
}

Update OneBitUpdate::frozen_moments() const {
  Update update = frozen_variance();
  std::get<AdamRule>(update.rule).beta1 = 1;
  return update;
}

OneBitUpdate one_bit_update(const dsconfig::ResolvedConfig& config, const Rates& rates,
                            int64_t updates, double grad_scale) {
  const OptimizerConfig& c = config.optimizer;
  std::optional<LambFreeze> lamb;
  if (c.kind == OptimizerKind::OneBitLamb)
    lamb = {c.min_coeff, c.max_coeff, c.coeff_beta, c.factor_min, c.factor_max, c.factor_threshold};
  return {.phase = one_bit_phase(config, updates),
          .rule = {.lr = rates.lr,
                   .beta1 = rates.momentum.value_or(c.beta1),
                   .beta2 = rates.beta2.value_or(c.beta2),
                   .eps = c.eps,
                   .weight_decay = c.weight_decay,
                   .decoupled = true,
                   .correction1 = 1,
                   .correction2 = 1},
          .grad_scale = grad_scale,
          .local = local_interval(config, updates),
          .lamb = lamb};
}

}  // namespace dsj::optim
