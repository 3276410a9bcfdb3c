#include "engine/optim/loss_weights.h"

#include <numeric>

namespace dsj::optim {

std::vector<double> loss_weights(dsconfig::LossNormalization normalization,
                                 std::span<const int64_t> targets, int64_t all, int world) {
  using enum dsconfig::LossNormalization;
  if (normalization == MicroBatch)
    return std::vector<double>(targets.size(), 1 / static_cast<double>(targets.size()));
  const double parts = normalization == Token ? world : 1;
  const double divisor = static_cast<double>(
      normalization == Token ? all : std::accumulate(targets.begin(), targets.end(), int64_t{0}));
  std::vector<double> weights;
  for (const int64_t count : targets)
    weights.push_back(divisor > 0 ? parts * static_cast<double>(count) / divisor : 0);
  return weights;
}

}  // namespace dsj::optim
