// The stage that runs, and which ranks do something among them: hpZ (zero_hpz_partition_size) and MiCS
// (mics_shard_size) keep flats, Ulysses (sequence_parallel_size) shares rows. The engine splits its ranks by these sizes (engine/zero/groups.h), and the
// memory model counts by them. Every group is of consecutive ranks, as in DeepSpeed.
// Pure.
#pragma once

#include "job/dsconfig/resolved.h"
#include "job/layout/stage.h"

namespace dsj::plan {

/// The stage that runs. With one rank to cut among there is nothing to shard, so every stage is 0;
/// except that parameters that leave the device need stage 3, which gathers them.
const layout::Stage& effective_stage(const dsconfig::ResolvedConfig& config, int world);

/// Sizes of groups, in ranks. All divide the world.
struct RankGroups {
  int world = 1;
  /// Ranks among which a flat is cut; below `world` with MiCS alone.
  int shards = 1;
  /// hpZ: ranks that share a second copy of what was gathered. 0: there is none.
  int near = 0;
  /// Quantized gradients are summed in these groups first, and then from group to group.
  bool rails = false;
  /// Ulysses: ranks that share a micro-batch, each with a part of its tokens.
  int sequence = 1;

  /// MiCS: ranks that have the same shard.
  int replicas() const { return world / shards; }
  /// Whether flats go to less than all ranks.
  bool parts_flats() const { return shards < world || near > 0; }
  bool splits() const { return parts_flats() || sequence > 1; }
};

/// `config`: resolved for this world size. A group as large as the world is the world: with it hpZ
/// and MiCS are plain stage 3.
RankGroups rank_groups(const dsconfig::ResolvedConfig& config, int world);

}  // namespace dsj::plan
