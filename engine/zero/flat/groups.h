// The groups of ranks that a run's collectives use. RunGroups makes them once from the configured
// sizes (plan::RankGroups). Flats use these Groups and never read the config. Collectives about the
// whole run (losses, agreement) use the world. One thread issues collectives on all groups, in
// the same order on every rank.
#pragma once

#include <memory>
#include <vector>

#include "common/result.h"
#include "engine/comm/collectives.h"
#include "job/plan/rank_groups.h"

namespace dsj::zero {

struct Groups {
  /// One group, for runs without hpZ and MiCS. Implicit on purpose: the world is such a group.
  Groups(comm::Collectives& all) : world(&all), shards(&all) {}

  comm::Collectives* world;
  /// The ranks among which a flat is cut. Used by gathers, reductions and sharded states.
  comm::Collectives* shards;
  /// MiCS: the ranks with the same shard, one in each group of shards. Their gradients are summed
  /// at the end of a step. Null if no other rank has this shard.
  comm::Collectives* replicas = nullptr;
  /// hpZ: the ranks that share a second copy of gathered parameters. Null without hpZ.
  comm::Collectives* near = nullptr;
  /// Quantized gradients with two hops: the ranks with this rank's index in each near group. Null
  /// if gradients go to all ranks in one hop.
  comm::Collectives* rail = nullptr;
  /// Ulysses: the ranks that share this rank's micro-batches. Null without Ulysses.
  comm::Collectives* sequence = nullptr;

  /// The number of ranks that share a micro-batch, and this rank's index among them.
  int sequence_ranks() const { return sequence ? sequence->world() : 1; }
  int sequence_rank() const { return sequence ? sequence->rank() : 0; }
  /// The number of micro-batches that run in parallel, and the index of this rank's.
  int data_ranks() const { return world->world() / sequence_ranks(); }
  int data_rank() const { return world->rank() / sequence_ranks(); }
  /// Whether this rank is the first one with its shard. Only that rank saves and counts the shard.
  bool first() const { return replicas == nullptr || replicas->rank() == 0; }
};

/// Owns the groups of a run except its world, which must outlive this object.
class RunGroups {
 public:
  /// Splits the world. If sizes.splits(), the world must have been made with Options::splits.
  /// Collective. Errors: as Collectives::split.
  static Result<RunGroups> make(comm::Collectives& world, const plan::RankGroups& sizes);

  const Groups& groups() const { return groups_; }
  /// What this rank sent in all groups, including the world.
  comm::Counters counters() const;
  void reset_counters();
  /// Shuts the owned groups down, not the world (Collectives::shutdown).
  void shutdown();

 private:
  explicit RunGroups(comm::Collectives& world) : groups_(world) {}
  std::vector<comm::Collectives*> all() const;

  std::unique_ptr<comm::Collectives> shards_, replicas_, near_, rail_, sequence_;
  Groups groups_;
};

}  // namespace dsj::zero
