// The largest micro-batches of a run, by the order in which it will deal its rows: what `dsj plan`
// predicts activations from.
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

/// By rows per micro-batch: for the sampler's number, and for each smaller number that divides it,
/// which takes the same rows in more micro-steps. `sizes`: of every row that the sampler deals.
/// `steps` >= 1. Where a run is longer than `dealt_max` rows, its order is not walked: then the
/// longest rows are taken to meet.
std::map<int64_t, MicroBatchSize> largest_micro_batches(const Sampler& sampler,
                                                        std::span<const RowSize> sizes,
                                                        int64_t steps,
                                                        int64_t dealt_max = 20'000'000);

}  // namespace dsj::data
