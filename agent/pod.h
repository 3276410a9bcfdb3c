// The description of a worker's pod for its agent: the environment from the operator and the
// downward API, and the mounted job (contract.h). Pure.
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
  jobspec::NodeHealth node_health;  ///< Off for pods of an older operator
  int64_t memory_request = 0;       ///< bytes; 0 if none
  int gpus = 0;                     ///< that its container requests
  std::string node;                 ///< empty if unknown
  std::string authority;  ///< of worker 0's key (job/join_keys.h), as PEM; empty if there is none
};

/// Reads the environment with `get`, which returns "" for unset variables. BadInput lists
/// everything that is missing or wrong.
Result<Pod> pod_from_environment(const std::function<std::string(const char*)>& get);

/// `host`, a cluster name of the form NAME.NAMESPACE.svc, with the cluster's domain and a final
/// dot, if `resolv_conf` has the domain (as the entry NAMESPACE.svc.DOMAIN of its search list);
/// otherwise `host` itself. The absolute name needs one query; otherwise the resolver first tries
/// every entry of the search list.
std::string absolute_host(const std::string& host, const std::string& ns,
                          const std::string& resolv_conf);

/// The agent's settings. Times are longer than on one machine, because networks have outages.
/// `programs` is the directory of dsj-train. `command` is the program and its arguments with
/// launcher: Command, else empty.
Result<AgentConfig> pod_config(const Pod& pod, const WorkerJob& job, const std::string& scratch,
                               const std::string& programs,
                               const std::vector<std::string>& command);

/// The required claims in tokens of this job's workers. `issuer` is that of this pod's own token,
/// which the kubelet mounted.
TokenRules token_rules(const Pod& pod, const std::string& issuer);

}  // namespace dsj::agent
