#include "engine/optim/averaging.h"

#include <numeric>

namespace dsj::optim {

Averaging averaging(const dsconfig::ResolvedConfig& config, int world) {
  using dsconfig::Precision;
  const double w = world, f = config.averaging.predivide;
  if (world == 1 || !config.averaging.mean) return {};
  if (config.averaging.prescale) return {.before = 1 / w};
  if (f != 1) {
    if (config.zero.stage == 3) return {.before = 1 / (f * w), .after = f};
    return {.before = 1 / f, .after = f / w};
  }
  const bool fp16 = dsconfig::scales_loss(config) ||
                    config.communication_dtype == Precision::Fp16 ||
                    config.grad_accum_dtype == Precision::Fp16;
  if (fp16) return {.before = 1 / w};
  return {.at_update = 1 / w};
}

std::vector<double> loss_weights(dsconfig::LossNormalization normalization,
                                 std::span<const int64_t> targets, int64_t all,
                                 const LossRanks& of) {
  using enum dsconfig::LossNormalization;
  if (of.parts > 1) {
    std::vector<double> weights = loss_weights(normalization, targets, all, {.ranks = of.ranks});
    for (size_t i = 0; i < weights.size(); ++i)
      weights[i] *= targets[i] > 0 ? static_cast<double>(of.own[i]) * of.parts /
                                         static_cast<double>(targets[i])
                                   : 0;
    return weights;
  }
  if (normalization == MicroBatch)
    return std::vector<double>(targets.size(), 1 / static_cast<double>(targets.size()));
  const double parts = normalization == Token ? of.ranks : 1;
  const double divisor = static_cast<double>(
      normalization == Token ? all : std::accumulate(targets.begin(), targets.end(), int64_t{0}));
  std::vector<double> weights;
  for (const int64_t count : targets)
    weights.push_back(divisor > 0 ? parts * static_cast<double>(count) / divisor : 0);
  return weights;
}

}  // namespace dsj::optim
