// What a pass will do, in the order in which apply.h does it: create and update objects, mark
// nodes, write the status, create pods, release pods from a queue, delete objects. If it is
// interrupted, the next pass plans the rest: a restart is in the status before its pods are
// created, names follow from the observation, and what a deletion would lose is in the status
// before the deletion.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "operator/observe/conditions.h"
#include "operator/observe/node_mark.h"
#include "operator/observe/times.h"
#include "operator/observe/worker_key.h"

namespace dsj::op {

struct Create {
  std::string kind, name;
  nlohmann::json object;
  bool refers = false;  ///< refers to another object of the plan, which must exist first
};

struct Delete {
  std::string kind, name;
  std::string uid;                            ///< precondition: delete only this object
  std::string version = {};                   ///< precondition if not empty: unchanged since
  bool force = false;                         ///< grace period 0: do not wait for the kubelet
  std::optional<int64_t> grace_seconds = {};  ///< if shorter than the object's own
};

/// A change of a pod's metadata that removes it, or its group, from a queue (reconcile_queue.cc).
struct Release {
  std::string pod;
  nlohmann::json metadata;  ///< a merge patch, with the pod's uid
};

/// A change of a key set (keys.h): a new key, dropped keys, or both. A Secret is created before the
/// ConfigMap refers to it, and deleted before the reference is removed.
struct KeyChange {
  std::string job, set;
  nlohmann::json metadata;  ///< metadata of the set's ConfigMap
  std::string version;      ///< version of that ConfigMap; empty if it does not exist yet
  std::string host;         ///< worker 0's host name, for which the key is issued
  std::vector<int> slots;   ///< candidates for the new key, in order; empty if none is created
  Time made{};
  std::vector<WorkerKey> keep, drop;
  /// A slot whose Secret may exist although the ConfigMap does not refer to it: the pass that
  /// announced it was interrupted.
  std::optional<int> half_made;
  bool may_move = false;  ///< no pod uses the set: if its names are taken, use another
};

struct Plan {
  std::optional<KeyChange> keys;  ///< changed before pods are created
  std::vector<Create> creates;
  std::vector<Create> updates;  ///< whole objects, with the version that they replace
  std::vector<NodeMark> marks;  ///< of nodes that the status lists as unfit for the first time
  nlohmann::json status;        ///< the operator's whole part; null if unchanged
  std::vector<Create> pods;
  std::vector<Release> releases;
  std::vector<Delete> deletes;
  std::vector<Event> events;  ///< published after the status is written
  /// Uids of pods whose events should be read (observed.h: PodWords).
  std::vector<std::string> ask;
  int workers = 0;            ///< of the gang in force, for pod_pace.h
  std::optional<Time> again;  ///< when the next pass is due if nothing changes
};

}  // namespace dsj::op
