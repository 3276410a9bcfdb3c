#include "job/dsconfig/config/group_sizes.h"

#include <algorithm>

namespace dsj::dsconfig {

std::optional<GroupSize> group_size(const ZeroConfig& zero) {
  if (zero.stage != 3) return std::nullopt;
  if (zero.hpz_partition_size > 1)
    return GroupSize{"zero_optimization.zero_hpz_partition_size", zero.hpz_partition_size};
  if (zero.mics_shard_size > 0)
    return GroupSize{"zero_optimization.mics_shard_size", zero.mics_shard_size};
  return std::nullopt;
}

bool fits_groups(const ZeroConfig& zero, int64_t world) {
  const auto group = group_size(zero);
  if (!group) return true;
  const int64_t ranks = zero.hpz_partition_size > 1 ? std::min(group->ranks, world) : group->ranks;
  return world % ranks == 0;
}

bool fits_groups(const ResolvedConfig& config, int64_t world) {
  return world % config.sequence_parallel_size == 0 && fits_groups(config.zero, world);
}

}  // namespace dsj::dsconfig
