// What each micro-batch counts in its step's loss. Pure, torch-free.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "job/dsconfig/loss_normalization.h"

namespace dsj::optim {

/// The weight of each micro-batch's mean loss, and of its gradient, in this rank's part of the
/// step's. The step's loss is the mean of the parts over `world` ranks. `targets`: of each
/// micro-batch of this rank, t; n of them. `all`: of all ranks, read by Token alone.
///
///   Token        world * t / all       as transformers with average_tokens_across_devices
///   Rank         t / (sum of t)        as transformers without it
///   MicroBatch   1 / n                 as DeepSpeed's engine
///
/// A micro-batch without a target has no gradient. Nothing is divided by 0: without any target, the
/// weights of the first two are 0.
std::vector<double> loss_weights(dsconfig::LossNormalization normalization,
                                 std::span<const int64_t> targets, int64_t all, int world);

}  // namespace dsj::optim
