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

namespace dsj::op {

struct Create {
  std::string kind, name;
  nlohmann::json object;
  bool refers = false;  ///< refers to another object of the plan, which must exist first
};

struct Delete {
  std::string kind, name;
  std::string uid;           ///< precondition: delete only this object. Never empty (apply.h)
  std::string version = {};  ///< precondition if not empty: unchanged since
  bool force = false;        ///< grace period 0: do not wait for the kubelet
  std::optional<int64_t> grace_seconds = {};  ///< if shorter than the object's own
};

/// A change of a pod's metadata that removes it, or its group, from a queue (reconcile_queue.cc).
struct Release {
  std::string pod;
  nlohmann::json metadata;  ///< a merge patch, with the pod's uid
};

/// The key of a new run (keys.h).
struct NewKey {
  std::string name;         ///< of its Secret
  nlohmann::json metadata;  ///< of its Secret
  std::string identity;     ///< of its authority
  std::string host;         ///< worker 0's host name, for which the certificate is issued
  Time made{};
  int64_t run = 0;
  std::string uid = {};  ///< of this run's Secret if a pass made it; empty if none is known
};

struct Plan {
  std::optional<NewKey> key;      ///< made before `pods`, which get its authority
  std::optional<Delete> old_key;  ///< deleted before the status is written, which forgets it
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
