// The 1-bit optimizers: which phase a step is in, and the numbers of its update. A rank sends its
// compressed momentum in place of the gradient once the variance is frozen. Who sends, and what is
// kept for it: engine/zero/methods.h. Semantics: DeepSpeed 0.18.9, the last with all of them;
// docs/optimizers.md lists where its code and the papers differ. Pure, torch-free.
//
//   OneBitAdam  m, v as Adam's, p -= lr (m / (sqrt(v) + eps) + weight_decay p), without bias
//               correction. Compressed: v stays, m = mean over ranks of compressed
//               (beta1 m + (1-beta1) g), where g is the rank's own gradient.
//   ZeroOneAdam the same, with a variance that is updated ever more seldom: each k-th step has an
//               averaged gradient and updates v; between, m takes a compressed mean of gradients.
//               After its freeze the ranks go on by themselves and exchange, compressed, what they
//               did in h steps. k and h double.
//   OneBitLamb  LAMB (optimizer.h) without bias correction. Compressed, as OneBitAdam, with one
//               coefficient per parameter: the mean of those before the freeze, times a factor that
//               follows what became of the variance.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/optim/optimizer.h"
#include "job/dsconfig/resolved.h"

namespace dsj::optim {

enum class OneBitPhase {
  Discarded,  ///< nothing is updated: DeepSpeed's first call only allocates
  WarmUp,     ///< the gradient is averaged over the ranks, as with any other optimizer
  // The gradient stays on its rank:
  CompressedMomentum,  ///< the momentum is averaged, compressed
  CompressedGradient,  ///< the gradient is averaged, compressed; v stays
  LocalStep,           ///< the rank updates its own copy; at the end of an interval, all meet
};

constexpr bool keeps_gradients_local(OneBitPhase phase) {
  return phase > OneBitPhase::WarmUp;
}

/// `updates`: how many were counted before this one. A freeze_step below 2 means 2, as there.
OneBitPhase one_bit_phase(const dsconfig::ResolvedConfig& config, int64_t updates);
/// Of a LocalStep: whether it is the first, and whether the ranks meet in it.
struct LocalInterval {
  bool first = false, meets = false;
};
LocalInterval local_interval(const dsconfig::ResolvedConfig& config, int64_t updates);

/// What OneBitLamb adds to an update.
struct LambFreeze {
  double min_coeff, max_coeff;
  double coeff_beta;  ///< of the mean of the coefficients before the freeze
  double factor_min, factor_max, factor_threshold;
};

/// The numbers of one update of a 1-bit optimizer.
struct OneBitUpdate {
  OneBitPhase phase = OneBitPhase::WarmUp;
  AdamRule rule;          ///< of a warm-up step: no bias correction
  double grad_scale = 1;  ///< on the gradient: averaging, loss scale, clipping
  LocalInterval local = {};
  std::optional<LambFreeze> lamb = {};  ///< OneBitLamb's

  /// The whole update where the gradient is averaged already.
  Update whole() const;
  /// v stays: with one rank, whose momentum nobody compresses.
  Update frozen_variance() const;
  /// m and v stay: once m is what came over the wire. The gradient is not looked at.
  Update frozen_moments() const;
};

OneBitUpdate one_bit_update(const dsconfig::ResolvedConfig& config, const Rates& rates,
                            int64_t updates, double grad_scale);

}  // namespace dsj::optim
