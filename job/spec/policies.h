// The policies of a DeepSpeedJob in a cluster: suspension, deadlines, cleanup, failures. The
// operator acts on these fields. `dsj run` reads and checks them, and refuses to start if they are
// set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dsj::jobspec {

enum class CleanPods {
  Running,  ///< when the job ends, delete running pods; the others keep their logs
  All,
  None,  ///< delete only pods that still run after the save timeout
};

/// What schedules the gang as a whole. The default scheduler places each pod separately.
enum class GangScheduler { None, Volcano, Kueue };

struct Scheduling {
  GangScheduler scheduler = GangScheduler::None;
  std::string queue;           ///< Volcano's Queue (empty: its default), Kueue's LocalQueue
  std::string priority_class;  ///< a PriorityClass, for Kueue a WorkloadPriorityClass; may be empty
  std::optional<int64_t> min_available;  ///< pods that are placed together; unset: all
};

/// spec.workers.topology: packs the workers by a label of the nodes. Nodes with the same value form
/// a domain.
struct Topology {
  enum class Mode {
    Required,   ///< all workers in one domain, or the job waits
    Preferred,  ///< as many as the scheduler can place there
  };
  std::string key;
  Mode mode = Mode::Required;
};

/// spec.elastic: the number of workers follows the available nodes (elastic.h).
struct Elastic {
  int min_replicas = 1, max_replicas = 1;
  int64_t shrink_after_seconds = 60;  ///< how long workers lack nodes before the gang shrinks
  int64_t grow_after_seconds = 600;   ///< how long a larger gang waits for a checkpoint
};

struct RunPolicy {
  std::optional<int64_t> active_deadline_seconds;   ///< from the start or the last resume
  std::optional<int64_t> startup_deadline_seconds;  ///< until the job's first attempt runs
  /// How long workers with nodes wait for those without before all release their nodes.
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

/// Matches a failure if every given condition holds.
struct FailureRule {
  std::string name;
  FailureAction action = FailureAction::Restart;
  std::vector<int> exit_codes;
  bool exit_codes_not_in = false;           ///< operator NotIn; exit code 0 never matches
  std::vector<std::string> reasons;         ///< of the agent or the pod
  std::vector<std::string> pod_conditions;  ///< types that must be True: "DisruptionTarget"
};

/// What an agent does if its node is unfit, before ranks start (agent/health/node_health.h).
enum class NodeHealthAction {
  Off,     ///< does not check
  Report,  ///< reports it in its log and metrics
  Move,    ///< its pod ends, and the next one avoids the node
};

struct NodeHealth {
  NodeHealthAction action = NodeHealthAction::Move;  ///< with Kueue: Report
  int64_t avoid_seconds = 3600;                      ///< how long later pods avoid the node
  /// A link below this share of the gang's median is too slow; 0: links are not measured.
  int64_t min_peer_bandwidth_percent = 20;
};

struct FailurePolicy {
  std::vector<FailureRule> rules;           ///< the first match counts; then the operator's own
  int64_t node_grace_seconds = 30;          ///< how long a node may be unreachable
  int64_t force_delete_after_seconds = 60;  ///< then its pods are given up; above the agents' lease
  bool exclude_failed_nodes = true;         ///< replacement pods avoid that node
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
