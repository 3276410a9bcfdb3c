// The sizes of an elastic job: the numbers of workers with which each step trains on the same
// number of rows. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "job/dsconfig/resolve.h"
#include "job/spec/policies.h"
#include "job/training_args.h"

namespace dsj::jobspec {

/// What determines a job's sizes.
struct ElasticInput {
  Elastic bounds;
  int replicas = 1;          ///< spec.workers.replicas
  int slots_per_worker = 1;  ///< ranks per worker
  const nlohmann::json& ds_config;
  const TrainingArgs& training;
};

struct ElasticSizes {
  std::vector<int> workers;  ///< ascending
  /// Why there are no sizes, or none equal to spec.workers.replicas; paths as in the manifest.
  std::vector<dsconfig::Finding> findings;
};

/// Sizes from minReplicas to maxReplicas. With ds_config's `elasticity`: those whose number of
/// ranks is one of its world sizes. Without it, train_batch_size and the micro-batch must be given,
/// and the accumulation must be a whole number. The groups of hpZ, MiCS or sequence_parallel_size
/// must divide the ranks (dsconfig/config/group_sizes.h). Empty without a finding if `elasticity` itself
/// is wrong, which dsconfig::resolve() reports.
ElasticSizes elastic_sizes(const ElasticInput& in);

/// The largest of `sizes` (ascending) that is at most `most`; 0 if none.
int largest_size(const std::vector<int>& sizes, int64_t most);

}  // namespace dsj::jobspec
