// The keys with which a job's worker 0 authenticates itself to the other workers (job/join_keys.h):
// which keys are created, kept and dropped, and how the cluster stores them. Pure; apply.h creates
// the keys.
//
// A key set serves one run of the gang. A run begins with new pods only, so it begins with a new
// set; the pod of a replaced worker gets the set of the running pods. A set is one ConfigMap with
// an authority per key, which every pod mounts, and one Secret per key, which only worker 0's pod
// mounts. The operator may create and delete Secrets but not read them, so the ConfigMap contains
// all that it must know about a key.
//
// A pass may be interrupted after it created a Secret and before it updated the ConfigMap. Then the
// Secret's uid is unknown, and its name is taken. The set of a new run uses the next slot or, if
// all slots are taken, the next number. The set of a running gang cannot do this forever, so a
// renewal first announces its slot in the ConfigMap, and a leftover Secret there is deleted by
// name.
#pragma once

#include "operator/observe/observed.h"
#include "operator/render/plan.h"

namespace dsj::op {

/// What to do with a set's keys.
struct KeyPlan {
  bool make = false;
  std::vector<WorkerKey> keep, drop;
  std::optional<Time> again;  ///< when to check again, if there is nothing to do now
};
/// `lost_before` is set if worker 0's agent found no key: keys made before that time are lost.
KeyPlan plan_keys(std::vector<WorkerKey> keys, Time now, std::optional<Time> lost_before = {});

/// The number of the run that a set is named after; 0 if it has none.
int64_t run_of(const std::string& set);
/// `<job>-keys-<set>`.
std::string key_set_name(const std::string& job, const std::string& set);
/// `<job>-dsj-key-<set>-<slot>`. The chart's policy matches this pattern.
std::string key_secret_name(const std::string& job, const std::string& set, int slot);

/// The change of the set that `plan` requires. `seen` is the set's ConfigMap, or null if it does
/// not exist.
KeyChange key_change(const JobView& job, const std::string& set, const ChildView* seen,
                     const KeyPlan& plan, Time now);
Delete key_deletion(const std::string& job, const std::string& set, const WorkerKey& key);

// The contents of the objects.
/// A merge patch of the ConfigMap that announces a renewal, before its Secret is created.
Json key_announcement(const KeyChange& change, int slot);
Json key_secret(const KeyChange& change, const std::string& name, int slot,
                const std::string& chain_pem, const std::string& key_pem);
/// The whole object if `change` has no version, else a merge patch. `made` and `authority_pem`
/// describe the new key, if any.
Json key_config(const KeyChange& change, const std::optional<WorkerKey>& made,
                const std::string& authority_pem);
/// The volume through which a pod mounts the set.
Json key_volume(const std::string& job, const std::string& set, int worker);

}  // namespace dsj::op
