// The largest micro-batches of a run in its order of rows; `dsj plan` predicts activations from
// them.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "engine/data/batches/sampler.h"
#include "engine/data/row_sizes.h"

namespace dsj::data {

/// The most tokens of any micro-batch, and the most targets of any.
struct MicroBatchSize {
  int64_t tokens = 0, targets = 0;
};

/// By rows per micro-batch: for the sampler's number, and for each smaller number that divides
/// it (the same rows in more micro-steps). `sizes`: of every row that the sampler deals.
/// `steps` >= 1. If a run deals more than `dealt_max` rows, its order is not followed; the
/// longest rows are then assumed to be in one micro-batch.
std::map<int64_t, MicroBatchSize> largest_micro_batches(const Sampler& sampler,
                                                        std::span<const RowSize> sizes,
                                                        int64_t steps,
                                                        int64_t dealt_max = 20'000'000);

}  // namespace dsj::data
