// The keys by which a job's worker 0 proves itself to the other workers (job/join_keys.h): which are
// made, kept and dropped, and how they lie in the cluster. Pure; apply.h makes the keys.
//
// A set of keys serves one run of the gang: a run begins with pods that are all new, so it begins with
// a new set, and a worker that is replaced gets the set of the pods that live. A set is one ConfigMap,
// which every pod mounts, with an authority per key, and one Secret per key, which only worker 0's pod
// mounts. The operator may create and delete Secrets and never read one: what it must know of a key
// is in the ConfigMap.
//
// A pass may be cut off between a Secret and the ConfigMap that should speak of it. Then nobody knows
// that Secret's uid, and its name is taken. The set of a new run takes the next slot, and when all are
// taken the run takes the next number. The set of a gang that lives can do neither for ever, so a
// renewal first announces its slot in the ConfigMap; what is left there is deleted by name.
#pragma once

#include "operator/observe/observed.h"
#include "operator/render/plan.h"

namespace dsj::op {

/// What to do about a set's keys.
struct KeyPlan {
  bool make = false;
  std::vector<WorkerKey> keep, drop;
  std::optional<Time> again;  ///< when to look next, if nothing is to be done now
};
/// `lost_before`: worker 0's agent found no key, so those made before then are gone; nullopt: it found one.
KeyPlan plan_keys(std::vector<WorkerKey> keys, Time now, std::optional<Time> lost_before = {});

/// The number of the run that a set is named for; 0: it has none.
int64_t run_of(const std::string& set);
/// `<job>-keys-<set>`.
std::string key_set_name(const std::string& job, const std::string& set);
/// `<job>-dsj-key-<set>-<slot>`. The chart's policy knows the pattern.
std::string key_secret_name(const std::string& job, const std::string& set, int slot);

/// The change that `plan` asks of the set; `seen`: its ConfigMap, if it is there.
KeyChange key_change(const JobView& job, const std::string& set, const ChildView* seen,
                     const KeyPlan& plan, Time now);
Delete key_deletion(const std::string& job, const std::string& set, const WorkerKey& key);

// What a key consists of, in the objects.
/// A merge patch of the ConfigMap, before the Secret of a renewal is made.
Json key_announcement(const KeyChange& change, int slot);
Json key_secret(const KeyChange& change, const std::string& name, int slot,
                const std::string& chain_pem, const std::string& key_pem);
/// Whole if `change` has no version, else a merge patch. `made` and its authority: the new key, if any.
Json key_config(const KeyChange& change, const std::optional<WorkerKey>& made,
                const std::string& authority_pem);
/// What a pod mounts of the set.
Json key_volume(const std::string& job, const std::string& set, int worker);

}  // namespace dsj::op
