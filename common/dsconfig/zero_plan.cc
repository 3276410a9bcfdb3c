#include "common/dsconfig/zero_plan.h"

#include <algorithm>

namespace dsj::dsconfig {

int effective_stage(const ResolvedConfig& config, int world) {
  return world == 1 ? 0 : config.zero.stage;
}

layout::FlatPlan plan_flats(const std::vector<layout::UnitSpec>& units,
                            const ResolvedConfig& config, int world) {
  const ZeroConfig& zero = config.zero;
  const int stage = effective_stage(config, world);
  layout::FlatPlanOptions options{.shard_world = stage == 0 ? 1 : world,
                                  .chunk_limit = zero.reduce_bucket_size};
  // Stages 1 and 2 gather what they reduce, by the same chunks: the smaller bucket holds for both.
  if (stage == 1 || stage == 2)
    options.chunk_limit = std::min(options.chunk_limit, zero.allgather_bucket_size);
  options.chunk_limit = std::max<int64_t>(options.chunk_limit, 1);
  if (stage == 3) {
    options.persistence_threshold = zero.param_persistence_threshold;
    options.model_persistence_threshold = zero.model_persistence_threshold;
  }
  return layout::plan_flats(units, options);
}

layout::ScheduleLimits schedule_limits(const ResolvedConfig& config, int world) {
  return {.sharded_parameters = effective_stage(config, world) == 3,
          .prefetch = config.zero.prefetch_bucket_size,
          .max_live = config.zero.max_live_parameters,
          .max_reuse_distance = config.zero.max_reuse_distance};
}

}  // namespace dsj::dsconfig
