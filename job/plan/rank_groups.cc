#include "job/plan/rank_groups.h"

namespace dsj::plan {
namespace {

/// The ranks over which stage 3 would shard a flat.
int shard_ranks(const dsconfig::ZeroConfig& zero, int world) {
  const int64_t group = zero.stage == 3 ? zero.mics_shard_size : -1;
  return group > 0 && group < world ? static_cast<int>(group) : world;
}

}  // namespace

const layout::Stage& effective_stage(const dsconfig::ResolvedConfig& config, int world) {
  const bool alone = shard_ranks(config.zero, world) == 1 &&
                     config.offload.param.device == dsconfig::OffloadDevice::None;
  return layout::kStages[alone ? 0 : config.zero.stage];
}

RankGroups rank_groups(const dsconfig::ResolvedConfig& config, int world) {
  RankGroups groups{
      .world = world, .shards = world, .sequence = static_cast<int>(config.sequence_parallel_size)};
  if (!effective_stage(config, world).shards_parameters()) return groups;
  groups.shards = shard_ranks(config.zero, world);
  const int64_t near = config.zero.hpz_partition_size;
  if (near > 1 && near < world) groups.near = static_cast<int>(near);
  groups.rails = groups.near > 0 && config.zero.quantized_gradients;
  return groups;
}

}  // namespace dsj::plan
