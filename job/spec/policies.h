// What a DeepSpeedJob says about its life in a cluster: suspension, deadlines, cleanup, failures.
// The operator acts on these fields. `dsj run` reads and checks them, and refuses to start with
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dsj::jobspec {

enum class CleanPods {
  Running,  ///< when the job is finished, delete running pods; others keep their logs
  All,
  None,  ///< delete only what still runs after the save timeout
};

/// Who places the gang as a whole. The ordinary scheduler places pod by pod.
enum class GangScheduler { None, Volcano, Kueue };

struct Scheduling {
  GangScheduler scheduler = GangScheduler::None;
  std::string queue;           ///< Volcano's Queue (empty: its default), Kueue's LocalQueue
  std::string priority_class;  ///< a PriorityClass, for Kueue a WorkloadPriorityClass; empty: none
  std::optional<int64_t> min_available;  ///< pods that are placed together; unset: all
};

/// spec.workers.topology: the workers are packed by a label of the nodes. Nodes with one value of it
/// are a domain.
struct Topology {
  enum class Mode {
    Required,   ///< all workers in one domain, or the job waits
    Preferred,  ///< as many as the scheduler can
  };
  std::string key;
  Mode mode = Mode::Required;
};

/// spec.elastic: the number of workers follows the nodes that are there (elastic.h).
struct Elastic {
  int min_replicas = 1, max_replicas = 1;
  int64_t shrink_after_seconds = 60;  ///< workers have had no place for so long
  int64_t grow_after_seconds = 600;   ///< a larger gang waits so long for a checkpoint
};

struct RunPolicy {
  std::optional<int64_t> active_deadline_seconds;   ///< from start, or from the last resume
  std::optional<int64_t> startup_deadline_seconds;  ///< until the job's first attempt runs
  /// How long workers with nodes wait for those without, before all give their nodes back.
  int64_t recovery_deadline_seconds = 1200;
  std::optional<int64_t> ttl_seconds_after_finished;
  CleanPods clean_pods = CleanPods::Running;
  Scheduling scheduling;
};

enum class FailureAction {
  FailJob,
  Restart,           ///< charged to the restart budget
  RestartUncounted,  ///< not charged
};

/// Takes a failure if every condition that is given holds.
struct FailureRule {
  std::string name;
  FailureAction action = FailureAction::Restart;
  std::vector<int> exit_codes;
  bool exit_codes_not_in = false;           ///< operator NotIn; exit code 0 never matches
  std::vector<std::string> reasons;         ///< the agent's, or the pod's
  std::vector<std::string> pod_conditions;  ///< types that must be True: "DisruptionTarget"
};

/// What an agent does that finds its node unfit before ranks start (agent/health/node_health.h).
enum class NodeHealthAction {
  Off,     ///< it does not look
  Report,  ///< it says so in its log and metrics
  Move,    ///< its pod ends, and its successor avoids the node
};

struct NodeHealth {
  NodeHealthAction action = NodeHealthAction::Move;  ///< with Kueue: Report
  int64_t avoid_seconds = 3600;                      ///< how long later pods avoid the node
  /// A node's link is too slow below so much of the gang's median; 0: links are not measured.
  int64_t min_peer_bandwidth_percent = 20;
};

struct FailurePolicy {
  std::vector<FailureRule> rules;           ///< the first match counts; else the operator's own
  int64_t node_grace_seconds = 30;          ///< how long a node may be away
  int64_t force_delete_after_seconds = 60;  ///< then its pods are given up; above the agents' lease
  bool exclude_failed_nodes = true;         ///< replacements avoid that node
  NodeHealth node_health;
};

struct Policies {
  bool suspend = false;
  RunPolicy run;
  FailurePolicy failure;
  std::optional<Elastic> elastic;
  std::optional<Topology> topology;
  int64_t save_timeout_seconds = 600;   ///< checkpoint.onSuspend.timeoutSeconds
  int64_t step_timeout_seconds = 1800;  ///< liveness.stepTimeoutSeconds
};

}  // namespace dsj::jobspec
