// The key with which a job's worker 0 authenticates itself to the other workers (job/join_keys.h).
// One key serves one run of the gang. Pure; apply.h creates the key.
//
// The private key is in an immutable Secret that only worker 0's pod mounts. The authority is in
// the environment of every pod: nobody can change that of an existing pod. A pod that joins a run
// gets the authority of the run's living pods. The operator may create and delete Secrets but not
// read them, so a Secret whose authority no pod has is of no use: another is made. The status has
// the uid of the run's Secret, and only the Secret with that uid is deleted. One whose uid is not
// known, because the operator died before it wrote the status, is left to the garbage collector: it
// goes with the job, and no pod trusts it.
//
// Before this, a set of keys was a ConfigMap and up to four Secrets. Pods of such a set run on with
// it; if one of them must be replaced, the gang starts a new run. Its Secrets go with the job.
#pragma once

#include "operator/observe/observed.h"
#include "operator/render/plan.h"
#include "operator/webhook/certificate.h"

namespace dsj::op {

/// What the pods of a run have in common.
struct RunKey {
  int64_t run = 0;        ///< 0 if the gang has one worker, which needs no key
  std::string authority;  ///< empty if the key is not made yet
  std::string image;      ///< of the agents; empty means the operator's
};

/// `<job>-dsj-key-<run>`. The chart's policy matches this pattern.
std::string key_secret_name(const std::string& job, int64_t run);
/// `uid`: of the Secret that the status has for this run, if any.
NewKey new_key(const JobView& job, int64_t run, const std::string& uid, Time now);
/// The same key under a name that no earlier pass used: a Secret of unknown uid has the run's own.
NewKey with_another_name(NewKey key, const std::string& job);
Json key_secret(const NewKey& key, const ServerCertificate& certificate);
Delete key_deletion(const std::string& job, int64_t run, const std::string& uid);

/// The volume through which worker 0's pod mounts the private key.
Json key_volume(const std::string& job, int64_t run);
/// Sets the key of a pod that was rendered before the key was made.
void set_key(Json& pod, const std::string& job, int64_t run, const std::string& authority_pem);

}  // namespace dsj::op
