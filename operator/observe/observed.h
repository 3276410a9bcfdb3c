// What the operator knows about one job when it decides: slim parts of the objects in its caches.
// reconcile.h is a function of this and the time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "job/report/status.h"
#include "operator/observe/acceptance.h"
#include "operator/observe/node_mark.h"
#include "operator/observe/times.h"
#include "operator/observe/worker_key.h"

namespace dsj::op {

using Json = nlohmann::json;

/// launcher: Command: the init container that brings the agent into the pod, and its volume.
inline constexpr char kAgentContainer[] = "dsj-agent";

// What comes from a rank, an agent, a kubelet or whoever may write a status is cut and its numbers are bounded here,
// and a failure's name that is reserved for the operator (job/failure_reasons.h) is replaced: what decides on a job
// never meets more.

/// Agent 0's part of the status (contract.h).
struct AgentStatus {
  int64_t attempt = 0;  ///< 0: none has started yet
  std::optional<int64_t> stop_step, saved_step;
  std::optional<Time> updated;
  std::optional<report::FailureRecord> last_failure;
  /// The last step is done and the model exported, by this attempt or one before it.
  bool finished = false;
  std::string stragglers;       ///< which ranks hold up the others; empty: none
  int64_t damaged_attempt = 0;  ///< the last one that passed over damaged checkpoints; 0: none
  std::string damaged;          ///< which, and what it goes on from
};

struct JobView {
  std::string ns, name, uid, resource_version;
  int64_t generation = 0;
  bool deleting = false;
  bool orphaning = false;   ///< deleted with --cascade=orphan: its children stay
  Json spec;                ///< with the queue of the job's label in it (job/spec/cluster_spec.h)
  std::string queue_label;  ///< empty: none
  Json own_status;          ///< the operator's part (own_status.h)
  AgentStatus agent;
};

/// On worker 0's pod: uid of the job's ServiceAccount when the pod was made.
inline constexpr char kAnnotationAccount[] = "training.dsj.dev/account";

/// An agent's termination message, or what the kubelet says instead.
struct Termination {
  int exit_code = 0;  ///< of the container: an ExitCode (contract.h) if the agent lived
  std::optional<int> rank_exit_code, rank_signal;  ///< of the rank to blame, if there is one
  std::string reason, message, last_words;
  std::optional<int64_t> step, attempt;
  std::optional<int> rank;
};

struct PodView {
  enum class Phase { Pending, Running, Succeeded, Failed };
  std::string name, uid, owner_uid, resource_version, node, revision;
  std::string gang;                     ///< its scheduling group; empty: none
  std::string image;                    ///< of its agent
  std::string keys;                     ///< its set of keys (keys.h); empty: none
  std::vector<std::string> finalizers;  ///< the object stays until they are taken off
  bool group_over = false;              ///< Kueue was told that its group gets no pod any more
  std::string
      avoids;  ///< nodes that it keeps away from (lost_nodes.h), by its annotation; empty: none
  std::string
      account;  ///< of worker 0's pod: uid of the ServiceAccount at its creation; empty: not known
  int worker = -1;
  int64_t incarnation = 0;
  int64_t restarts = 0;  ///< status.restarts.total when the pod was made
  /// Of the worker's container once that has ended: others of the pod decide nothing. Else of the pod.
  Phase phase = Phase::Pending;
  std::optional<Time> created;
  bool running = false;  ///< the worker's container is running
  /// The worker's container has ended, and another of the pod, a sidecar, runs on: the pod is over, and has to go. A
  /// kubelet ends a pod's phase a moment after its last container: in that moment nothing lingers.
  bool lingers = false;
  std::optional<Time> deleting_from;  ///< deletionTimestamp: the end of its grace period
  bool scheduled = false;
  bool gated = false;         ///< a queue holds it: it has scheduling gates
  std::string foreign_gates;  ///< names of those that are not of a queue known here
  std::string unscheduled;    ///< the scheduler's message
  std::string waiting_reason, waiting_message;  ///< of a container that cannot start, or fetches
  std::optional<Termination>
      termination;                      ///< of the worker's container, or of a failed initializer
  std::string reason, message;          ///< of the pod: "Evicted", "NodeLost"
  std::vector<std::string> conditions;  ///< types that are True

  bool ended() const { return phase == Phase::Succeeded || phase == Phase::Failed; }
};

struct ChildView {
  std::string kind, name, uid, owner_uid, revision, resource_version;
  /// Of the job's ConfigMaps: the accepted spec, and what it referred to.
  std::string spec_text, config_text, template_text;
  size_t content = 0;                ///< child_content.h
  std::string key_set;               ///< of a ConfigMap of keys; empty: it is none
  std::vector<WorkerKey> keys = {};  ///< of that set, oldest first
  std::optional<int> key_announced;  ///< the slot of a key that was being made (keys.h)
  std::optional<Time> created = {};
};

struct NodeView {
  bool ready = true;
  Time since{};  ///< of the last change of `ready`
};

/// The API server refused an object of this job. Kept until a create succeeds.
struct Refusal {
  std::string reason;  ///< conditions.h: QuotaExceeded, Forbidden, NameTaken, Invalid
  std::string message;
};

/// The operator's own options that a pod is made from.
struct Settings {
  std::string worker_image = "dsj-worker:latest";
  std::string image_pull_policy;  ///< empty: Kubernetes' default
  bool network_policy = true;     ///< one per job
  /// What a job's pods may reach beside each other and DNS: NetworkPolicyEgressRules (egress.h);
  /// nullopt: everything.
  std::optional<Json> egress;
  bool volcano = false;                 ///< PodGroups can be made and watched
  bool kueue = false;                   ///< Kueue can be told which groups are over
  std::string tmp_size_limit = "10Gi";  ///< a quantity, of a worker's /tmp; "0": the node's disk
  std::string default_template;         ///< of jobs that name no DeepSpeedJobTemplate; empty: none
  /// securityContext of workers' pods and containers, field by field where the template says nothing against it. All but
  /// the read-only root is what Pod Security's level "restricted" demands.
  Json pod_security = {{"runAsNonRoot", true}, {"seccompProfile", {{"type", "RuntimeDefault"}}}};
  Json container_security = {{"allowPrivilegeEscalation", false},
                             {"capabilities", {{"drop", Json::array({"ALL"})}}},
                             {"readOnlyRootFilesystem", true}};
  NodeMarks node_marks = NodeMarks::None;  ///< what is left on nodes that agents find unfit
};

/// What was said of pods that have a node and no container: a volume that cannot be mounted, a network that cannot be set
/// up. A kubelet says such things in events alone.
struct PodWords {
  Time read{};
  std::map<std::string, std::string> of;  ///< by the pod's uid: "FailedMount: ..."
};
/// Pods that are asked about at a time.
inline constexpr size_t kPodsAskedAbout = 3;

struct Observed {
  std::string ns, name;        ///< the job's
  std::optional<JobView> job;  ///< nullopt: the API server does not have it
  std::vector<PodView> pods;
  std::vector<ChildView> children;
  Verdict wanted;                            ///< of the job's spec
  std::shared_ptr<const Accepted> in_force;  ///< the last accepted spec, if that is another
  std::map<std::string, NodeView> nodes;     ///< empty if nodes may not be read
  std::optional<Refusal> refusal;
  PodWords words;          ///< as of the last time that a plan asked
  Time pods_full{};        ///< when the bucket of its pods is full again (pod_pace.h)
  std::string taken_set;   ///< a set of keys of which no Secret can be made (apply.h); empty: none
  std::string token_keys;  ///< the cluster's public keys (a JWKS); empty: cannot be read
  Settings settings;
};

/// True if the agent's last words say that the job's last step is done. Nothing else is success.
bool is_done(const PodView& pod);
/// True if the worker stopped on request and every rank saved the same step.
bool is_preempted(const PodView& pod);
/// True if its agent found that ranks must not start on its node.
bool found_unfit(const PodView& pod);
/// True if worker 0's agent found no key to prove itself with: the Secret was deleted (render/keys.h).
bool lacked_key(const PodView& pod);
/// True if the platform took the pod: nobody is to blame. A kubelet that evicts a pod for what the pod itself used
/// sets no condition DisruptionTarget.
bool is_disruption(const PodView& pod);
/// True if nobody can say how its container ended: the node went down, and its kubelet or runtime found the container
/// gone when it came back. A program cannot end so.
bool ended_unseen(const PodView& pod);
/// True if the node's kubelet did not take the pod in: it never ran, and may run elsewhere.
bool is_rejected(const PodView& pod);

JobView job_view(const Json& object);
/// status.training.lastFailure; nullopt: there is none.
std::optional<report::FailureRecord> agents_failure(const Json& told);
/// nullopt: not a pod of a job.
std::optional<PodView> pod_view(const Json& object);
ChildView child_view(const Json& object);
/// The newest of a pod's warnings that is younger than kWordsAge, "REASON: NOTE", cut; empty: none. Those of schedulers are
/// left out: the pod has a node by now.
std::string words_of(const std::vector<Json>& warnings, Time now);
inline constexpr std::chrono::seconds kWordsAge{300};
NodeView node_view(const Json& object);
/// A label's value; empty: it has no such label.
std::string label_of(const Json& object, const char* name);
/// The controller's uid; empty: none.
std::string owner_of(const Json& object);

}  // namespace dsj::op
