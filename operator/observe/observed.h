// The operator's view of one job for a decision: the relevant fields of the objects in its caches.
// reconcile.h is a function of this view and the time.
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
#include "operator/observe/contest.h"
#include "operator/observe/node_mark.h"
#include "operator/observe/times.h"

namespace dsj::op {

using Json = nlohmann::json;

/// With launcher Command: the init container that copies the agent into the pod, and its volume.
inline constexpr char kAgentContainer[] = "dsj-agent";

// Ranks, agents, kubelets and others with write access to a status are not trusted. Here their
// texts are cut, their numbers bounded, and failure reasons reserved for the operator
// (job/failure_reasons.h) replaced, so that decisions only see valid values.

/// Agent 0's part of the status (contract.h).
struct AgentStatus {
  int64_t attempt = 0;  ///< 0 if none has started yet
  std::optional<int64_t> stop_step, saved_step;
  std::optional<Time> updated;
  std::vector<report::FailureRecord> failures;  ///< that are not counted yet, and the last one
  /// This attempt or an earlier one did the last step and exported the model.
  bool finished = false;
  std::string stragglers;       ///< ranks that slow down the others; empty if none
  int64_t damaged_attempt = 0;  ///< the last attempt that skipped damaged checkpoints; 0 if none
  std::string damaged;          ///< which checkpoints, and what the attempt resumed from
};

struct JobView {
  std::string ns, name, uid, resource_version;
  int64_t generation = 0;
  bool deleting = false;
  bool orphaning = false;   ///< deleted with --cascade=orphan: its children stay
  Json spec;                ///< includes the queue from the job's label (job/spec/cluster_spec.h)
  std::string queue_label;  ///< empty if the job has none
  Json own_status;          ///< the operator's part (own_status.h)
  AgentStatus agent;
};

/// On worker 0's pod: uid of the job's ServiceAccount when the pod was created.
inline constexpr char kAnnotationAccount[] = "training.dsj.dev/account";

/// An agent's termination message, or the kubelet's reason if there is none.
struct Termination {
  int exit_code = 0;  ///< of the container: an ExitCode (contract.h) if the agent wrote it
  std::optional<int> rank_exit_code, rank_signal;  ///< of the rank that failed, if any
  std::string reason, message, last_words;
  std::optional<int64_t> step, attempt;
  std::optional<int> rank;
};

struct PodView {
  enum class Phase { Pending, Running, Succeeded, Failed };
  std::string name, uid;
  std::string owner_uid;  ///< of the DeepSpeedJob that controls it; empty if none does
  std::string resource_version, node, revision;
  std::string gang;       ///< its scheduling group; empty if none
  std::string image;      ///< image of its agent
  int64_t run = 0;        ///< that its key was made for (keys.h); 0 if none
  std::string authority;  ///< of its key; empty also if an older operator made the pod
  std::vector<std::string> finalizers;  ///< the object stays until they are removed
  bool group_over = false;              ///< Kueue was told that the group gets no more pods
  std::string avoids;  ///< nodes that it avoids (lost_nodes.h), from its annotation; empty if none
  std::string
      account;  ///< on worker 0's pod: uid of the ServiceAccount at creation; empty if unknown
  int worker = -1;
  int64_t incarnation = 0;
  int64_t restarts = 0;  ///< status.restarts.total when the pod was made
  /// Phase of the worker's container once it has ended, whatever the pod's other containers do;
  /// until then the pod's phase.
  Phase phase = Phase::Pending;
  std::optional<Time> created;
  bool running = false;  ///< the worker's container is running
  /// The worker's container has ended but another container, such as a sidecar, still runs. The pod
  /// is over and must be deleted. False once the pod's own phase has ended.
  bool lingers = false;
  std::optional<Time> deleting_from;  ///< deletionTimestamp: the end of its grace period
  bool scheduled = false;
  bool gated = false;         ///< it has scheduling gates: a queue holds it
  std::string foreign_gates;  ///< names of gates that do not belong to a known queue
  std::string unscheduled;    ///< the scheduler's message
  std::string waiting_reason, waiting_message;  ///< of a container that waits, or of an initializer
  std::optional<Termination>
      termination;                      ///< of the worker's container, or of a failed initializer
  std::string reason, message;          ///< of the pod, such as "Evicted" or "NodeLost"
  std::vector<std::string> conditions;  ///< types of the conditions that are True
  /// It has the labels by which the watch, the Service and the NetworkPolicy select it.
  bool labelled = true;

  bool ended() const { return phase == Phase::Succeeded || phase == Phase::Failed; }
};

struct ChildView {
  std::string kind, name, uid;
  std::string owner_uid;  ///< of the DeepSpeedJob that controls it; empty if none does
  std::string revision, resource_version;
  /// In the job's ConfigMaps: the accepted spec, and the texts that it refers to.
  std::string spec_text, config_text, template_text;
  bool labelled = true;  ///< it has the labels by which watches and the job's user find it
  size_t content = 0;    ///< child_content.h
  std::string key_set;   ///< of an older operator's ConfigMap of keys; empty for other objects
  std::optional<Time> created = {};
};

struct NodeView {
  bool ready = true;
  Time since{};  ///< time of the last change of `ready`
};

/// What the API server stored of an object that the operator sent: a cluster's policies may add
/// fields.
struct Admitted {
  size_t sent = 0, stored = 0;  ///< content_of() of child_content.h
};
/// By kind and name. Contains only objects for which the two differ.
using AdmittedObjects = std::map<std::pair<std::string, std::string>, Admitted>;

/// The API server refused to create an object of this job. Kept until a create succeeds.
struct Refusal {
  std::string reason;  ///< conditions.h: QuotaExceeded, Forbidden, NameTaken, Invalid
  std::string message;
  /// If the name is taken: whose object has it.
  std::string kind = {}, name = {}, uid = {};
};

/// The operator's options that affect a job's objects.
struct Settings {
  std::string worker_image = "dsj-worker:latest";
  std::string image_pull_policy;  ///< empty means Kubernetes' default
  bool network_policy = true;     ///< one per job
  /// What a job's pods may reach besides each other and DNS: NetworkPolicyEgressRules (egress.h).
  /// nullopt allows everything.
  std::optional<Json> egress;
  bool volcano = false;                 ///< PodGroups can be created and watched
  bool kueue = false;                   ///< the operator may tell Kueue that a group is over
  std::string tmp_size_limit = "10Gi";  ///< quantity for a worker's /tmp; "0" means the node's disk
  std::string default_template;  ///< for jobs that name no DeepSpeedJobTemplate; empty if none
  /// securityContext of workers' pods and containers. Each field applies unless the template sets
  /// it. All but the read-only root file system is required by the Pod Security level "restricted".
  Json pod_security = {{"runAsNonRoot", true}, {"seccompProfile", {{"type", "RuntimeDefault"}}}};
  Json container_security = {{"allowPrivilegeEscalation", false},
                             {"capabilities", {{"drop", Json::array({"ALL"})}}},
                             {"readOnlyRootFilesystem", true}};
  NodeMarks node_marks = NodeMarks::None;  ///< mark on nodes that agents find unfit
};

/// Whether a worker's root file system is read-only if the template does not set it.
bool read_only_root(const Settings& settings);

/// Warning events of pods that have a node but no running container, for example because a volume
/// cannot be mounted or a network cannot be set up. Kubelets report such problems only in events.
struct PodWords {
  Time read{};
  std::map<std::string, std::string> of;  ///< by the pod's uid, as in "FailedMount: ..."
};
/// How many pods are queried at a time.
inline constexpr size_t kPodsAskedAbout = 3;

/// The key of a run (render/keys.h).
struct MadeKey {
  int64_t run = 0;  ///< 0 if none
  std::string uid;  ///< of its Secret
  std::string authority;
};

struct Observed {
  std::string ns, name;        ///< of the job
  std::optional<JobView> job;  ///< nullopt if the API server does not have it
  std::vector<PodView> pods;
  std::vector<ChildView> children;
  Verdict wanted;                            ///< verdict on the job's spec
  std::shared_ptr<const Accepted> in_force;  ///< last accepted spec, if not `wanted`
  std::map<std::string, NodeView> nodes;     ///< empty if nodes may not be read
  std::optional<Refusal> refusal;
  PodWords words;    ///< as of the last time that a plan requested them
  Time pods_full{};  ///< when the token bucket for its pods is full again (pod_pace.h)
  AdmittedObjects admitted;
  Contests contests;
  /// Pods that left the watch although the API server did not begin to delete them.
  std::vector<std::string> strayed;
  MadeKey unused_key;      ///< made by an earlier pass that could create no pod with it
  std::string token_keys;  ///< the cluster's public keys (a JWKS); empty if they cannot be read
  Settings settings;
};

/// True if the agent's termination message says that the job's last step is done. Nothing else
/// counts as success.
bool is_done(const PodView& pod);
/// True if the worker stopped on request and every rank saved the same step.
bool is_preempted(const PodView& pod);
/// True if its agent found the node unfit and started no ranks.
bool found_unfit(const PodView& pod);
/// True if worker 0's agent did not find its key because the Secret was deleted (render/keys.h).
bool lacked_key(const PodView& pod);
/// True if the platform removed the pod, so that no failure is charged. A kubelet that evicts a pod
/// for the pod's own usage does not set the condition DisruptionTarget.
bool is_disruption(const PodView& pod);
/// True if the container's end was not observed: the node went down, and its kubelet or runtime
/// found the container gone after it came back. A program cannot end this way.
bool ended_unseen(const PodView& pod);
/// True if the node's kubelet rejected the pod: it never ran, and may run on another node.
bool is_rejected(const PodView& pod);

JobView job_view(const Json& object);
/// The failures in status.training, oldest first.
std::vector<report::FailureRecord> agents_failures(const Json& training);
/// nullopt if the object is not a worker pod of a job.
std::optional<PodView> pod_view(const Json& object);
ChildView child_view(const Json& object);
/// The newest warning about a pod that is younger than kWordsAge, as "REASON: NOTE", cut. Empty if
/// there is none. Warnings of schedulers are ignored because the pod has a node.
std::string words_of(const std::vector<Json>& warnings, Time now);
inline constexpr std::chrono::seconds kWordsAge{300};
NodeView node_view(const Json& object);
/// A label's value; empty if the object does not have the label.
std::string label_of(const Json& object, const char* name);
/// Name of the job that an object belongs to: of the DeepSpeedJob that controls it, else of its label.
std::string job_of(const Json& object);
/// uid of the DeepSpeedJob that controls the object; empty if none does.
std::string owner_of(const Json& object);
/// Whether the object has a controlling owner of any kind.
bool has_controller(const Json& object);

}  // namespace dsj::op
