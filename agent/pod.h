// A worker's pod as its agent finds it: the environment from the operator and the downward API, and
// the mounted job (contract.h). Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "agent/config.h"
#include "agent/join/token.h"
#include "job/spec/policies.h"
#include "job/worker_job.h"

namespace dsj::agent {

struct Pod {
  std::string job, ns, job_uid, revision;
  int worker = 0;
  int64_t incarnation = 1;
  std::string worker_zero_host, name, ip, service_account;
  jobspec::NodeHealth node_health;  ///< of an older operator: Off
  int64_t memory_request = 0;       ///< bytes; 0: none
  int gpus = 0;                     ///< that its container asks for
  std::string node;                 ///< empty: not told
  bool tls = false;  ///< worker 0 has keys (job/join_keys.h); an older operator made none
};

/// Reads the environment by `get` (empty: not set). BadInput: lists at once everything that is
/// missing or wrong.
Result<Pod> pod_from_environment(const std::function<std::string(const char*)>& get);

/// `host`, a name in the cluster as NAME.NAMESPACE.svc, with the cluster's domain and a dot at the end, if
/// `resolv_conf` tells the domain: as the entry NAMESPACE.svc.DOMAIN of its search list. Then one question
/// answers; without it the resolver first tries every entry of the list. Else `host` itself.
std::string absolute_host(const std::string& host, const std::string& ns,
                          const std::string& resolv_conf);

/// The agent's config. Times are longer than on one machine, because a network has pauses.
/// `programs`: the directory of dsj-train. `command`: with launcher: Command, the program and its
/// arguments; else empty.
Result<AgentConfig> pod_config(const Pod& pod, const WorkerJob& job, const std::string& scratch,
                               const std::string& programs,
                               const std::vector<std::string>& command);

/// What the tokens of this job's workers must say. `issuer`: that of this pod's own token, which
/// the kubelet put there.
TokenRules token_rules(const Pod& pod, const std::string& issuer);

}  // namespace dsj::agent
