// The 1-bit optimizers: the phase of a step and the numbers of its update. After the variance is
// frozen, a rank sends its compressed momentum instead of the gradient. engine/zero/methods/methods.h
// implements the communication and its state. Semantics: DeepSpeed 0.18.9, the last version with
// all of them; docs/optimizers.md lists where its code and the papers differ. Pure, torch-free.
//
//   OneBitAdam  m, v as in Adam, p -= lr (m / (sqrt(v) + eps) + weight_decay p), without bias
//               correction. Compressed: v stays, m = mean over ranks of compressed
//               (beta1 m + (1-beta1) g), where g is the rank's own gradient.
//   ZeroOneAdam the same, with a variance updated at growing intervals: each k-th step has an
//               averaged gradient and updates v; between, m takes a compressed mean of gradients.
//               After the freeze the ranks take local steps, and exchange the compressed sum of
//               h steps. k and h double.
//   OneBitLamb  LAMB (optimizer.h) without bias correction. Compressed, as OneBitAdam, with one
//               coefficient per parameter: the mean of those before the freeze, times a factor that
//               follows the change of the variance.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/optim/optimizer.h"
#include "job/dsconfig/config/resolved.h"

namespace dsj::optim {

enum class OneBitPhase {
  Discarded,  ///< nothing is updated: DeepSpeed's first call only allocates
  WarmUp,     ///< the gradient is averaged over the ranks, as usual
  // The gradient stays on its rank:
  CompressedMomentum,  ///< the momentum is averaged, compressed
  CompressedGradient,  ///< the gradient is averaged, compressed; v stays
  LocalStep,           ///< the rank updates its own copy; ranks meet at the interval's end
};

constexpr bool keeps_gradients_local(OneBitPhase phase) {
  return phase > OneBitPhase::WarmUp;
}

/// `updates`: number of earlier updates. A freeze_step below 2 means 2, as in DeepSpeed.
OneBitPhase one_bit_phase(const dsconfig::ResolvedConfig& config, int64_t updates);
/// For a LocalStep: whether it is the first, and whether the ranks synchronize in it.
struct LocalInterval {
  bool first = false, meets = false;
};
LocalInterval local_interval(const dsconfig::ResolvedConfig& config, int64_t updates);

/// OneBitLamb's additional numbers of an update.
struct LambFreeze {
  double min_coeff, max_coeff;
  double coeff_beta;  ///< for the mean of the coefficients before the freeze
  double factor_min, factor_max, factor_threshold;
};

/// The numbers of one update of a 1-bit optimizer.
struct OneBitUpdate {
  OneBitPhase phase = OneBitPhase::WarmUp;
  AdamRule rule;          ///< of a warm-up step; no bias correction
  double grad_scale = 1;  ///< on the gradient: averaging, loss scale, clipping
  LocalInterval local = {};
  std::optional<LambFreeze> lamb = {};  ///< OneBitLamb's

  /// The whole update, for an averaged gradient.
  Update whole() const;
  /// Keeps v, for one rank, whose momentum is not compressed.
  Update frozen_variance() const;
  /// Keeps m and v, after m was received. Does not read the gradient.
  Update frozen_moments() const;
};

OneBitUpdate one_bit_update(const dsconfig::ResolvedConfig& config, const Rates& rates,
                            int64_t updates, double grad_scale);

}  // namespace dsj::optim
