#include "job/dsconfig/config/one_bit_steps.h"

#include <algorithm>

namespace dsj::dsconfig {

int64_t one_bit_count(const ResolvedConfig& config, int64_t updates) {
  return updates + (config.precision == Precision::Fp32 ? 1 : 2);
}

int64_t first_local_step(const OptimizerConfig& optimizer) {
  // The freeze is decided at the end of a step whose count is above var_freeze_step; the lost call
  // decides nothing.
  return std::max<int64_t>(static_cast<int64_t>(optimizer.var_freeze_step), 1) + 2;
}

bool has_local_steps(const ResolvedConfig& config) {
  if (config.optimizer.kind != OptimizerKind::ZeroOneAdam) return false;
  if (config.total_steps <= 0) return true;
  return one_bit_count(config, config.total_steps - 1) >= first_local_step(config.optimizer);
}

}  // namespace dsj::dsconfig
