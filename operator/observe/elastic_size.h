// Chooses how many workers an elastic job has (spec.elastic). Pure: a function of what was
// observed, of status.elastic, and of the time.
//
// A gang shrinks to the workers that are placed if the cluster has no room for the missing ones.
// While a smaller gang trains, the missing workers request nodes as pods of the larger gang
// ("spares"), so that the cluster's scheduler, quota and autoscaler decide. Once the spares have
// nodes, the gang grows at the next checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job/spec/policies.h"
#include "operator/observe/times.h"

namespace dsj::op {

/// status.elastic.
struct ElasticState {
  int replicas = 0;     ///< the size in force; 0 if none was chosen yet
  int wanted = 0;       ///< spec.workers.replicas, of the last accepted spec
  int64_t resizes = 0;  ///< rises with each change of size, so that each gang has a unique name
  int setbacks = 0;     ///< shrinks and vain spares, without a quiet hour between them
  std::string message;  ///< why the size is what it is; empty if it never changed
  std::optional<Time> changed;         ///< when the size changed
  std::optional<Time> growable;        ///< since when a larger gang has nodes
  int64_t growable_step = 0;           ///< the newest checkpoint at that time; 0 if none
  std::optional<Time> spares_in_vain;  ///< since when spares hold nodes but give no larger size
  std::optional<Time> not_before;      ///< no spare is created before this time
};

struct ElasticSeen {
  std::vector<int> sizes;  ///< sizes that fit the batch, ascending, not empty
  int wanted = 1;          ///< at least sizes.front()
  jobspec::Elastic policy;
  int64_t recovery_deadline_seconds = 1200;
  bool trains = false;  ///< an attempt is open and every worker runs
  /// Since when some workers hold nodes and wait for the rest.
  std::optional<Time> short_since;
  int placed = 0;         ///< workers on a node that is ready
  int running = 0;        ///< those of them whose pods run
  bool no_place = false;  ///< the scheduler or a quota has no room for any of the rest
  std::string missing;    ///< the first worker that does not run, and why
  int spares_placed = 0;
  bool spares_failed = false;  ///< a spare ended, or must not be created
  int64_t saved_step = 0;      ///< newest checkpoint; 0 if none
};

struct ElasticChoice {
  ElasticState state;
  bool resized = false;     ///< state.replicas changed
  int spares = 0;           ///< pods beyond the gang that should request nodes
  std::optional<Time> due;  ///< when the answer may change without a new observation
};

/// The size to continue with if nothing was observed: the last one, unless the spec now forbids it.
/// If `size` is 0: the largest that `wanted` allows.
int permitted_size(const std::vector<int>& sizes, int wanted, int size);

/// Resets the state: a gang without pods tries the largest size again.
void start_large(const std::vector<int>& sizes, int wanted, ElasticState& state);

/// Rules, in this order:
///   - A gang that does not train shrinks shrinkAfterSeconds after it became short, to the workers
///     with nodes, if the cluster has no room for the rest. Otherwise it shrinks at the recovery
///     deadline, to the workers that run. Below the smallest size it is released.
///   - A gang that trains below its largest size has spares. After each setback they pause (one
///     minute, doubled up to thirty), so that unstable nodes do not make the gang unstable.
///   - It grows to the largest size for which spares have nodes, at the first checkpoint after that
///     or growAfterSeconds later.
///   - Spares that hold nodes without giving a larger size release them at the recovery deadline.
/// Times in the state have whole seconds.
ElasticChoice choose_size(const ElasticSeen& seen, const ElasticState& before, Time now);

/// The revision of an elastic job's gang: BASE-WORKERS-RESIZES.
std::string sized_revision(const std::string& base, int workers, int64_t resizes);
/// The part before the size. The revision of a job that is not elastic is returned unchanged.
std::string base_revision(const std::string& revision);
/// RESIZES, the part after the last "-"; empty if the job is not elastic.
std::string resizes_of(const std::string& revision);

}  // namespace dsj::op
