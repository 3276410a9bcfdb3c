// The world sizes that groups of ranks allow: hpZ (zero_hpz_partition_size) and MiCS
// (mics_shard_size).
// Pure.
#pragma once

#include <optional>
#include <string>

#include "job/dsconfig/config/resolved.h"

namespace dsj::dsconfig {

/// A key that groups ranks at this stage, and the size of a group.
struct GroupSize {
  std::string path;  ///< "zero_optimization.mics_shard_size"
  int64_t ranks = 1;
};
/// nullopt if the ranks form no groups. If both keys are set, which resolve() refuses: hpZ's.
std::optional<GroupSize> group_size(const ZeroConfig& zero);
/// Whether a world of `world` ranks divides into groups. As in DeepSpeed, a world smaller than
/// hpZ's groups is one group; MiCS needs whole groups.
bool fits_groups(const ZeroConfig& zero, int64_t world);
/// The same, and whether sequence_parallel_size divides `world`.
bool fits_groups(const ResolvedConfig& config, int64_t world);

}  // namespace dsj::dsconfig
