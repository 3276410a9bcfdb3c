// The factor on fp16's loss: a state machine over "did this step overflow?", as DeepSpeed 0.19's
// DynamicLossScaler (ds_config.md 3.3, machine A), at every stage. Torch-free, no failures but the
// one it reports.
#pragma once

#include <cstdint>

#include "common/dsconfig/resolved.h"

namespace dsj::optim {

/// With s the scale, h the overflows that are still forgiven before it halves, and q the steps
/// without an overflow since the last one (or since the start):
///   overflow       h = 1: s = max(s / 2, minimum), or the end of the run where s is the minimum;
///                  else h -= 1
///   no overflow    consecutive_hysteresis: h = hysteresis. Then, if q > 0 and window divides q:
///                  s *= 2 and h = hysteresis. q counts the steps before this one, so that the
///                  scale doubles one step after a window is full.
/// A fixed scale never changes and never ends a run.
class LossScaler {
 public:
  /// What comes back on resume, beside the config.
  struct State {
    double scale = 1;
    int64_t hysteresis = 0;      ///< h
    int64_t step = 0;            ///< updates so far
    int64_t last_overflow = -1;  ///< its step; -1: none
    friend bool operator==(const State&, const State&) = default;
  };

  /// Unscaled precisions (fp32, bf16) take the default config with fixed = 1.
  explicit LossScaler(const dsconfig::LossScaleConfig& config);
  /// fp16's config as it stands; for the others a fixed 1.
  static LossScaler of(const dsconfig::ResolvedConfig& config);

  double scale() const { return state_.scale; }
  bool dynamic() const { return config_.fixed == 0; }
  /// After a step. False: it overflowed at the minimum and nothing is left to try; nothing changed.
  [[nodiscard]] bool update(bool overflow);

  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

 private:
  dsconfig::LossScaleConfig config_;
  State state_;
};

}  // namespace dsj::optim
