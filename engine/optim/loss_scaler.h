// The factor on fp16's loss: a state machine driven by whether a step overflowed. Follows DeepSpeed
// 0.19's DynamicLossScaler at every stage; under torch_autocast and amp, torch's GradScaler.
// Torch-free.
#pragma once

#include <cstdint>

#include "job/dsconfig/config/resolved.h"

namespace dsj::optim {

/// s is the scale, h the number of overflows left until it halves, q the number of steps between
/// the last overflow (or the start) and this step.
///   overflow, h > 1    h -= 1
///   overflow, h = 1    s = max(s / 2, minimum); if s is the minimum already, the run ends
///   no overflow        consecutive_hysteresis: h = hysteresis.
///                      Then, if q > 0 and window divides q: s *= 2 and h = hysteresis. q does not
///                      count this step, so the scale doubles one step after a window is full.
///                      like_torch: q counts this step, and s stays at most the maximum.
/// A fixed scale never changes and never ends a run.
class LossScaler {
 public:
  /// Saved in a checkpoint and restored on resume.
  struct State {
    double scale = 1;
    int64_t hysteresis = 0;      ///< h
    int64_t step = 0;            ///< updates so far
    int64_t last_overflow = -1;  ///< its step, or -1
    friend bool operator==(const State&, const State&) = default;
  };

  /// For fp16. Other precisions use a config with fixed = 1.
  explicit LossScaler(const dsconfig::LossScaleConfig& config);
  /// With fp16 products, the config's loss scale; otherwise a fixed 1.
  static LossScaler of(const dsconfig::ResolvedConfig& config);

  double scale() const { return state_.scale; }
  bool dynamic() const { return config_.fixed == 0; }
  /// Call it after each step. Returns false, without a change of state, if the step overflowed at
  /// the smallest scale: then nothing is left to try.
  [[nodiscard]] bool update(bool overflow);

  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

 private:
  dsconfig::LossScaleConfig config_;
  State state_;
};

}  // namespace dsj::optim
