// Which world sizes the groups of ranks allow: hpZ (zero_hpz_partition_size) and MiCS
// (mics_shard_size).
// Pure.
#pragma once

#include <optional>
#include <string>

#include "job/dsconfig/resolved.h"

namespace dsj::dsconfig {

/// A key that makes groups of ranks at this stage, and their size.
struct GroupSize {
  std::string path;  ///< "zero_optimization.mics_shard_size"
  int64_t ranks = 1;
};
/// nullopt: the ranks form no groups. With both keys, which resolve() refuses, hpZ's.
std::optional<GroupSize> group_size(const ZeroConfig& zero);
/// Whether the groups have one size in a world of so many ranks. As in DeepSpeed, a world smaller than
/// hpZ's groups is one group; MiCS needs a whole one.
bool fits_groups(const ZeroConfig& zero, int64_t world);
/// The same, and whether sequence_parallel_size divides it.
bool fits_groups(const ResolvedConfig& config, int64_t world);

}  // namespace dsj::dsconfig
