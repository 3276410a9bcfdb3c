// DeepSpeed's elasticity: one batch size that many world sizes can train with. Arithmetic only. It
// equals the solver of DeepSpeed 0.19.7, the last release that has one. resolve() calls it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::dsconfig {

/// The section `elasticity`, enabled.
struct ElasticityRequest {
  double version = 0.2;
  int64_t max_train_batch_size = 0;
  std::vector<int64_t> micro_batch_sizes;  ///< above 0
  int64_t min_ranks = 1, max_ranks = 10000;
  int64_t ranks_per_node = 1;       ///< version 0.2
  int64_t model_parallel_size = 1;  ///< version 0.2
  bool prefer_larger = true;        ///< among batches with equally many world sizes
};

// The keys whose values the solver judges.
inline constexpr char kElasticMicroBatches[] = "elasticity.micro_batch_sizes";
inline constexpr char kElasticMaximumBatch[] = "elasticity.max_train_batch_size";

/// Limits of the number of micro-batches and of the rows of a batch, which bound the solver's work.
inline constexpr size_t kElasticMicroBatchesMax = 64;
inline constexpr int64_t kElasticBatchMax = 1'000'000'000'000;

struct Elasticity {
  int64_t train_batch_size = 0;
  std::vector<int64_t> world_sizes;  ///< ascending
};

/// Version 0.1: the candidates are each micro-batch and their least common multiple, times the largest highly composite
/// number that stays within the maximum. The candidate that the most world sizes divide wins. Version 0.2 does this
/// over whole nodes. If `world` is not in that result, version 0.2 takes the largest batch for `world`, and the list
/// has only its number of data-parallel ranks. `world` 0 means unknown: the list over nodes. Errors: BadInput with the
/// key ("elasticity.micro_batch_sizes") for what DeepSpeed refuses.
Result<Elasticity> solve_elasticity(const ElasticityRequest& request, int64_t world);

struct ElasticBatch {
  int64_t micro = 0, accumulation = 0;
};
/// The largest micro-batch that divides a rank's share of the batch. Errors: BadInput if `world` is
/// not in the list or no micro-batch divides.
Result<ElasticBatch> elastic_batch(const ElasticityRequest& request, const Elasticity& solved,
                                   int64_t world);

}  // namespace dsj::dsconfig
