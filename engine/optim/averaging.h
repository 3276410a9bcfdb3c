// How gradients and losses of ranks and micro-batches are averaged: where gradients are divided by
// the world size, which in 16 bits decides what overflows, and what each micro-batch counts in its
// step's loss. Pure, torch-free.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "job/dsconfig/loss_normalization.h"
#include "job/dsconfig/resolved.h"

namespace dsj::optim {

/// gradient = after * (sum over ranks of before * local), then accumulated. The update and the norm
/// multiply by at_update. before and after round in the communication type; at_update never rounds.
struct Averaging {
  double before = 1, after = 1, at_update = 1;
};

/// The factors {before, after, at_update}, with W ranks and f = gradient_predivide_factor, as in
/// DeepSpeed 0.19's stages. The first row that applies:
///   one rank, or a sum is asked for    1, 1, 1
///   prescale_gradients                 1/W, 1, 1
///   f != 1, stage 3                    1/(fW), f, 1
///   f != 1, other stages               1/f, f/W, 1
///   fp16 takes part                    1/W, 1, 1: if no rank's gradient overflows, the mean fits
///   else                               1, 1, 1/W: costs no pass over the gradient
Averaging averaging(const dsconfig::ResolvedConfig& config, int world);

/// Ranks whose losses have one mean.
struct LossRanks {
  int ranks = 1;  ///< that have micro-batches of their own, or groups that share them
  int parts = 1;  ///< ranks of a group
  /// With parts: of each micro-batch the targets in this rank's.
  std::span<const int64_t> own = {};
};

/// The weight of each micro-batch's mean loss, and of its gradient, in this rank's part of the
/// step's. The step's loss is the mean of these over all ranks. `targets`: of each
/// micro-batch of this rank, t; n of them. `all`: of all ranks, read by Token alone.
///
///   Token        ranks * t / all       as transformers with average_tokens_across_devices
///   Rank         t / (sum of t)        as transformers without it
///   MicroBatch   1 / n                 as DeepSpeed's engine
///
/// Where a group shares micro-batches, t is the group's, and each rank's weight is its share of them
/// times the ranks of a group: together they weigh what one rank would.
///
/// A micro-batch without a target has no gradient. Nothing is divided by 0: without any target, the
/// weights of the first two are 0.
std::vector<double> loss_weights(dsconfig::LossNormalization normalization,
                                 std::span<const int64_t> targets, int64_t all,
                                 const LossRanks& of);

}  // namespace dsj::optim
