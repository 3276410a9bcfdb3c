// How many workers an elastic job has (spec.elastic). Pure: a function of what was seen, what is
// remembered in status.elastic, and the time.
//
// A gang that is not whole and whose other workers have no place becomes as small as what is there.
// While a smaller gang trains, the workers that it lacks ask for places as pods of the larger gang
// ("spares"): the cluster's own scheduler, quota and autoscaler answer. Once they have nodes the
// gang grows, at the next checkpoint.
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
  int replicas = 0;     ///< the size in force; 0: none was chosen yet
  int wanted = 0;       ///< spec.workers.replicas, of the last accepted spec
  int64_t resizes = 0;  ///< rises with each change of the size, so that no two gangs have one name
  int setbacks = 0;     ///< shrinks, and spares in vain, without a quiet hour in between
  std::string message;  ///< why the size is what it is; empty: it was never another
  std::optional<Time> changed;         ///< when the size changed
  std::optional<Time> growable;        ///< since when a larger gang has its places
  int64_t growable_step = 0;           ///< the newest checkpoint at that time; 0: none
  std::optional<Time> spares_in_vain;  ///< since when spares hold nodes that make no larger size
  std::optional<Time> not_before;      ///< no spare asks before this time
};

struct ElasticSeen {
  std::vector<int> sizes;  ///< that fit the batch, ascending, not empty
  int wanted = 1;          ///< at least sizes.front()
  jobspec::Elastic policy;
  int64_t recovery_deadline_seconds = 1200;
  bool trains = false;  ///< an attempt is open and every worker runs
  /// Since when some workers hold nodes and wait for others.
  std::optional<Time> short_since;
  int placed = 0;         ///< workers with a node that answers
  int running = 0;        ///< of these, whose pods run
  bool no_place = false;  ///< the scheduler or a quota has no place for any of the others
  std::string missing;    ///< the first worker that does not run, and why
  int spares_placed = 0;
  bool spares_failed = false;  ///< a spare ended, or may not be made
  int64_t saved_step = 0;      ///< newest checkpoint; 0: none
};

struct ElasticChoice {
  ElasticState state;
  bool resized = false;     ///< state.replicas is another
  int spares = 0;           ///< pods beyond the gang that shall ask for nodes
  std::optional<Time> due;  ///< when time alone may change the answer
};

/// The size to go on with when nothing is seen: the last one, unless the spec forbids it by now.
/// `size` 0: the largest that `wanted` allows.
int permitted_size(const std::vector<int>& sizes, int wanted, int size);

/// A gang that starts from no pods tries the largest size again. What it learned is forgotten.
void start_large(const std::vector<int>& sizes, int wanted, ElasticState& state);

/// Rules, in this order:
///   - a gang that does not train shrinks to the workers with nodes, shrinkAfterSeconds after it
///     became short if no place is seen for the others, else to those that run at the recovery
///     deadline; to none below the smallest size: then the gang is released as any other;
///   - one that trains below its largest size has spares, but not before a pause after each setback
///     (one minute, doubled up to thirty): nodes that come and go do not make it come and go;
///   - it grows to the largest size that spares with nodes make, at the first checkpoint after they
///     have them, or growAfterSeconds later;
///   - spares that hold nodes and make no size give them back at the recovery deadline.
/// Times in the state have whole seconds.
ElasticChoice choose_size(const ElasticSeen& seen, const ElasticState& before, Time now);

/// The revision of a gang of an elastic job: BASE-WORKERS-RESIZES.
std::string sized_revision(const std::string& base, int workers, int64_t resizes);
/// The part before the size; of another job's revision, all of it.
std::string base_revision(const std::string& revision);
/// What follows the last "-": RESIZES; empty: the job is not elastic.
std::string resizes_of(const std::string& revision);

}  // namespace dsj::op
