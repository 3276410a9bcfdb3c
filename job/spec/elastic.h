// The sizes of an elastic job: the numbers of workers with which each step trains on the same rows.
// Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "job/dsconfig/resolve.h"
#include "job/spec/policies.h"
#include "job/training_args.h"

namespace dsj::jobspec {

/// What of a job decides its sizes.
struct ElasticInput {
  Elastic bounds;
  int replicas = 1;          ///< spec.workers.replicas
  int slots_per_worker = 1;  ///< ranks per worker
  const nlohmann::json& ds_config;
  const TrainingArgs& training;
};

struct ElasticSizes {
  std::vector<int> workers;  ///< ascending
  /// Why there are none, or none that spec.workers.replicas allows; paths as in the manifest.
  std::vector<dsconfig::Finding> findings;
};

/// Sizes from minReplicas to maxReplicas. With ds_config's `elasticity`: those whose ranks are one
/// of the world sizes that its solver lists. Else train_batch_size and the micro-batch are given, and
/// the sizes are those that make the accumulation a whole number. With hpZ, MiCS or
/// sequence_parallel_size their groups divide the ranks (dsconfig/group_sizes.h). Empty without a finding:
/// `elasticity` itself is wrong, which dsconfig::resolve() reports.
ElasticSizes elastic_sizes(const ElasticInput& in);

/// The largest of `sizes` (ascending) that is not above `most`; 0: none.
int largest_size(const std::vector<int>& sizes, int64_t most);

}  // namespace dsj::jobspec
