// The groups of ranks that a run's collectives go to. They are made once, from the sizes that the
// config decides (plan::RankGroups), and handed to the flats: a flat asks its Groups, never the
// config. Collectives about the whole run (losses, agreement) go to the world. One thread issues to
// all groups, in the same order on every rank.
#pragma once

#include <memory>
#include <vector>

#include "common/result.h"
#include "engine/comm/collectives.h"
#include "job/plan/rank_groups.h"

namespace dsj::zero {

struct Groups {
  /// One group for all: every stage without hpZ and MiCS. Not explicit: it is the world itself.
  Groups(comm::Collectives& all) : world(&all), shards(&all) {}

  comm::Collectives* world;
  /// The ranks among which a flat is cut. Gathers, reductions and the states of an update go there.
  comm::Collectives* shards;
  /// MiCS: the ranks that have this rank's shard, one of each group of shards. Their gradients
  /// become one sum at the end of a step. Null: no other rank has this shard.
  comm::Collectives* replicas = nullptr;
  /// hpZ: the ranks that share a second copy of gathered parameters. Null: there is none.
  comm::Collectives* near = nullptr;
  /// Quantized gradients between groups of near ranks: the ranks that have this rank's place in each.
  /// Null: gradients go to all ranks at once.
  comm::Collectives* rail = nullptr;
  /// Ulysses: the ranks that share this rank's micro-batches. Null: none.
  comm::Collectives* sequence = nullptr;

  /// How many ranks share a micro-batch, and which of them this is.
  int sequence_ranks() const { return sequence ? sequence->world() : 1; }
  int sequence_rank() const { return sequence ? sequence->rank() : 0; }
  /// Micro-batches that run side by side, and which of them is this rank's.
  int data_ranks() const { return world->world() / sequence_ranks(); }
  int data_rank() const { return world->rank() / sequence_ranks(); }
  /// Whether this rank is the first of those that have its shard: it saves the shard, and counts it.
  bool first() const { return replicas == nullptr || replicas->rank() == 0; }
};

/// The groups of a run besides its world, which must outlive it.
class RunGroups {
 public:
  /// Splits the world, which was made with Options::splits if sizes.splits(). Collective. Errors: as
  /// Collectives::split.
  static Result<RunGroups> make(comm::Collectives& world, const plan::RankGroups& sizes);

  const Groups& groups() const { return groups_; }
  /// What this rank sent in all groups, the world's included.
  comm::Counters counters() const;
  void reset_counters();
  /// Shuts the parts down, not the world (Collectives::shutdown).
  void shutdown();

 private:
  explicit RunGroups(comm::Collectives& world) : groups_(world) {}
  std::vector<comm::Collectives*> all() const;

  std::unique_ptr<comm::Collectives> shards_, replicas_, near_, rail_, sequence_;
  Groups groups_;
};

}  // namespace dsj::zero
