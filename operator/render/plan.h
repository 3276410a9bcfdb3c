// What a pass wants done, in the order in which apply.h does it: create and mend objects, mark nodes, write
// the status, create pods, let a queue forget some, delete objects. If it is cut off in between, the next pass plans the rest: a
// restart is in the status before its pods are made, names follow from what was seen, and what a
// deletion would lose is in the status before the deletion.
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
  bool refers = false;  ///< names another object of the plan, which must exist first
};

struct Delete {
  std::string kind, name;
  std::string uid;           ///< precondition: delete this very object only
  std::string version = {};  ///< precondition, unless empty: it has not changed since
  bool force = false;        ///< grace period 0: do not wait for the kubelet
  std::optional<int64_t> grace_seconds = {};  ///< shorter than the object's own
};

/// A change of a pod's metadata that lets a queue forget it, or its group (reconcile_queue.cc).
struct Release {
  std::string pod;
  nlohmann::json metadata;  ///< a merge patch, with the uid of that very pod
};

/// A change of a set of keys (keys.h): a new key, old ones that go, or both. Its Secret is made before
/// the ConfigMap that speaks of it, and deleted before the ConfigMap forgets it.
struct KeyChange {
  std::string job, set;
  nlohmann::json metadata;  ///< of the set's ConfigMap
  std::string version;      ///< of that ConfigMap; empty: it is not there yet
  std::string host;         ///< worker 0's, which the key is for
  std::vector<int> slots;   ///< for the new key, the first that is free; empty: none is made
  Time made{};
  std::vector<WorkerKey> keep, drop;
  /// A slot whose Secret may be there though the ConfigMap does not speak of it: a pass that had announced
  /// it was cut off.
  std::optional<int> half_made;
  bool may_move = false;  ///< no pod has the set: if its names are taken, another will do
};

struct Plan {
  std::optional<KeyChange> keys;  ///< before pods are made
  std::vector<Create> creates;
  std::vector<Create> updates;  ///< whole objects, with the version that they replace
  std::vector<NodeMark> marks;  ///< of nodes that the status says for the first time to be unfit
  nlohmann::json status;        ///< the operator's whole part; null: unchanged
  std::vector<Create> pods;
  std::vector<Release> releases;
  std::vector<Delete> deletes;
  std::vector<Event> events;  ///< to be told after the status is written
  /// Uids of pods whose events are to be read (observed.h: PodWords).
  std::vector<std::string> ask;
  int workers = 0;            ///< of the gang in force, for pod_pace.h
  std::optional<Time> again;  ///< when the next pass is due even if nothing changes
};

}  // namespace dsj::op
