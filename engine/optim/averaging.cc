#include "engine/optim/averaging.h"

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

}  // namespace dsj::optim
