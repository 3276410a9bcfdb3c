// The stage that runs, and the groups of ranks: hpZ (zero_hpz_partition_size) and MiCS
// (mics_shard_size) share flats, Ulysses (sequence_parallel_size) shares rows. The engine creates
// its groups by these sizes (engine/zero/flat/groups.h), and the memory model counts with them. Every
// group has consecutive ranks, as in DeepSpeed. Pure.
#pragma once

#include "job/dsconfig/config/resolved.h"
#include "job/layout/stage.h"

namespace dsj::plan {

/// The stage that runs. With a single rank to shard over, every stage is stage 0, except that
/// offloaded parameters need stage 3, which gathers them.
const layout::Stage& effective_stage(const dsconfig::ResolvedConfig& config, int world);

/// Sizes of groups, in ranks. All divide the world.
struct RankGroups {
  int world = 1;
  /// Ranks over which a flat is sharded; only MiCS makes it less than `world`.
  int shards = 1;
  /// hpZ: ranks that share a second copy of gathered parameters; 0 if there is none.
  int near = 0;
  /// Quantized gradients are reduced within these groups first, and then between groups.
  bool rails = false;
  /// Ulysses: ranks that share a micro-batch, each with a part of its tokens.
  int sequence = 1;

  /// MiCS: ranks that have the same shard.
  int replicas() const { return world / shards; }
  /// Whether some collectives of flats involve only a part of the ranks.
  bool parts_flats() const { return shards < world || near > 0; }
  bool splits() const { return parts_flats() || sequence > 1; }
};

/// `config`: resolved for this world size. A group of all ranks is no group: hpZ and MiCS are then
/// plain stage 3.
RankGroups rank_groups(const dsconfig::ResolvedConfig& config, int world);

}  // namespace dsj::plan
