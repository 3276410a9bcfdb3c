// Averages gradients and losses over ranks and micro-batches: where gradients are divided by the
// world size, which decides in 16 bits what overflows, and the weight of each micro-batch in its
// step's loss. Pure, torch-free.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "job/dsconfig/config/loss_normalization.h"
#include "job/dsconfig/config/resolved.h"

namespace dsj::optim {

/// gradient = after * (sum over ranks of before * local), then accumulated. The update and the norm
/// multiply by at_update. before and after round in the communication type; at_update never does.
struct Averaging {
  double before = 1, after = 1, at_update = 1;
};

/// The factors {before, after, at_update}, with W ranks and f = gradient_predivide_factor, as in
/// DeepSpeed 0.19's stages. The first row that applies:
///   one rank, or a sum is asked for    1, 1, 1
///   prescale_gradients                 1/W, 1, 1
///   f != 1, stage 3                    1/(fW), f, 1
///   f != 1, other stages               1/f, f/W, 1
///   any type is fp16                   1/W, 1, 1: if no rank's gradient overflows, the mean fits
///   else                               1, 1, 1/W: needs no pass over the gradient
Averaging averaging(const dsconfig::ResolvedConfig& config, int world);

/// The ranks over whose losses one mean is taken.
struct LossRanks {
  int ranks = 1;  ///< ranks, or groups of ranks that share micro-batches
  int parts = 1;  ///< ranks per group
  /// With groups: the targets of each micro-batch in this rank's part.
  std::span<const int64_t> own = {};
};

/// The weight of each micro-batch's mean loss, and of its gradient, in this rank's part of the
/// step's loss, which is the mean of these parts over all ranks. `targets`: t of each of this
/// rank's n micro-batches. `all`: targets of all ranks, used by Token only.
///
///   Token        ranks * t / all       as transformers with average_tokens_across_devices
///   Rank         t / (sum of t)        as transformers without it
///   MicroBatch   1 / n                 as DeepSpeed's engine
///
/// If a group shares micro-batches, t is the group's, and a rank's weight is its share of the
/// targets times the group's size, so that the group weighs as much as one rank.
///
/// A micro-batch without targets has no gradient. If there are no targets at all, the weights of
/// the first two are 0.
std::vector<double> loss_weights(dsconfig::LossNormalization normalization,
                                 std::span<const int64_t> targets, int64_t all,
                                 const LossRanks& of);

}  // namespace dsj::optim
