// The order of rows under a curriculum by metrics (clusters.h), as intended by DeepSpeed's
// sampler: a step takes rows of every admitted cluster in proportion to its size, and visits
// each cluster in its own random order, completely before any row repeats. DeepSpeed draws the
// clusters of a batch at random; here one pass over the admitted rows takes each exactly once.
// The order is a function of the seed, the step and the place in the step: nothing is saved,
// and another world size with the same global batch takes the same rows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/data/batches/clusters.h"

namespace dsj::data {

class ClusterOrder {
 public:
  /// `batch`: rows of a step over all ranks, at least 1 (DSJ_CHECK).
  ClusterOrder(std::shared_ptr<const Clusters> clusters, int64_t batch, uint64_t seed);

  /// The row at `place` of `step`, both from 0. Cheap for the last requested step and the next
  /// one; any other step counts again from the first step on, without reading rows. One thread
  /// at a time.
  int64_t row(int64_t step, int64_t place);

 private:
  /// The cluster of the `place`-th row that is dealt while clusters 0 to `phase` are admitted.
  int64_t cluster_of(int64_t phase, int64_t place) const;
  void count_until(int64_t step);
  void deal(int64_t step);
  int64_t phase_of(int64_t step) const;

  std::shared_ptr<const Clusters> clusters_;
  const int64_t batch_;
  const uint64_t seed_;
  int64_t step_ = -1;            ///< the step of rows_
  std::vector<int64_t> rows_;    ///< [batch]
  std::vector<int64_t> counts_;  ///< [clusters]: rows dealt before step_ + 1
};

}  // namespace dsj::data
