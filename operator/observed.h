// What the operator knows of one job when it decides: slim parts of the objects in its caches. A
// pass is a function of this and the time (reconcile.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "operator/acceptance.h"
#include "operator/times.h"

namespace dsj::op {

using Json = nlohmann::json;

/// Agent 0's part of the status (contract.h).
struct AgentStatus {
  int64_t attempt = 0;  ///< 0: none was started yet
  std::optional<int64_t> stop_step, saved_step;
  std::optional<Time> updated;
  Json last_failure;  ///< null, or an object with "attempt"
};

struct JobView {
  std::string ns, name, uid, resource_version;
  int64_t generation = 0;
  bool deleting = false;
  Json spec;
  Json own_status;  ///< the operator's part (own_status.h)
  AgentStatus agent;
};

/// An agent's last words, or what the kubelet says instead.
struct Termination {
  int exit_code = 0;  ///< the container's: contract.h's ExitCode when the agent lived
  std::optional<int> rank_exit_code, rank_signal;  ///< of the one rank that is to blame
  std::string reason, message, last_words;
  std::optional<int64_t> step, attempt;
  std::optional<int> rank;
};

struct PodView {
  enum class Phase { Pending, Running, Succeeded, Failed };
  std::string name, uid, owner_uid, resource_version, node, revision;
  std::string gang;  ///< its scheduling group; empty: none
  int worker = -1;
  int64_t incarnation = 0;
  int64_t restarts = 0;  ///< status.restarts.total when it was made
  Phase phase = Phase::Pending;
  std::optional<Time> created;
  bool running = false;               ///< the worker's container runs
  std::optional<Time> deleting_from;  ///< deletionTimestamp: when its grace is over
  bool scheduled = false;
  std::string unscheduled;                      ///< the scheduler's sentence
  std::string waiting_reason, waiting_message;  ///< a container that cannot start
  std::optional<Termination> termination;       ///< of the worker's container
  std::string reason, message;                  ///< of the pod: "Evicted", "NodeLost"
  std::vector<std::string> conditions;          ///< types that are True

  bool ended() const { return phase == Phase::Succeeded || phase == Phase::Failed; }
};

struct ChildView {
  std::string kind, name, uid, owner_uid, revision, resource_version;
  std::string spec_text, config_text;  ///< of the job's ConfigMaps: the accepted spec
};

struct NodeView {
  bool ready = true;
  Time since{};  ///< of the last change of `ready`
};

/// The API server did not take an object of this job; kept until a create succeeds.
struct Refusal {
  std::string reason;  ///< conditions.h: QuotaExceeded, Forbidden, NameTaken, Invalid
  std::string message;
};

/// The operator's own options that a pod is made by.
struct Settings {
  std::string worker_image = "dsj-worker:latest";
  std::string image_pull_policy;  ///< empty: Kubernetes' default
  bool network_policy = true;     ///< one per job
  bool volcano = false;           ///< PodGroups may be made and watched
};

struct Observed {
  std::string ns, name;        ///< the job's
  std::optional<JobView> job;  ///< none: the API server does not have it
  std::vector<PodView> pods;
  std::vector<ChildView> children;
  Verdict wanted;                            ///< of the job's spec
  std::shared_ptr<const Accepted> in_force;  ///< of the last accepted spec, when that is another
  std::map<std::string, NodeView> nodes;     ///< empty when nodes may not be read
  std::optional<Refusal> refusal;
  std::string token_keys;  ///< the cluster's public keys (a JWKS); empty: not readable
  Settings settings;
};

/// The agent's last words are that the job's last step is done: nothing else is success.
bool is_done(const PodView& pod);
/// Stopped on request, every rank saved the same step.
bool is_preempted(const PodView& pod);

JobView job_view(const Json& object);
/// nullopt: not a pod of a job.
std::optional<PodView> pod_view(const Json& object);
ChildView child_view(const Json& object);
NodeView node_view(const Json& object);
/// A label's value, or empty.
std::string label_of(const Json& object, const char* name);
/// The uid of the controller; empty: none.
std::string owner_of(const Json& object);

}  // namespace dsj::op
