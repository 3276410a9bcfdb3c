#include "engine/optim/loss_scaler.h"

#include <algorithm>

namespace dsj::optim {

LossScaler::LossScaler(const dsconfig::LossScaleConfig& config)
    : config_(config),
      state_{.scale = config.fixed != 0 ? config.fixed : config.initial,
             .hysteresis = config.hysteresis} {}

LossScaler LossScaler::of(const dsconfig::ResolvedConfig& config) {
  if (dsconfig::scales_loss(config)) return LossScaler(config.loss_scale);
  return LossScaler({.fixed = 1});
}

bool LossScaler::update(bool overflow) {
  if (!dynamic()) return true;
  if (overflow) {
    if (config_.hysteresis == 1 || state_.hysteresis == 1) {
      if (state_.scale == config_.minimum) return false;
      state_.scale = std::max(state_.scale / 2, config_.minimum);
    } else {
      --state_.hysteresis;
    }
    state_.last_overflow = state_.step;
  } else {
    if (config_.consecutive_hysteresis) state_.hysteresis = config_.hysteresis;
    const int64_t quiet = state_.step - state_.last_overflow - (config_.like_torch ? 0 : 1);
    if (quiet > 0 && quiet % config_.window == 0) {
      state_.scale = std::min(state_.scale * 2, config_.maximum);
      state_.hysteresis = config_.hysteresis;
    }
  }
  ++state_.step;
  return true;
}

}  // namespace dsj::optim
