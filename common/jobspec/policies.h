// What a DeepSpeedJob says about its life in a cluster: suspend, deadlines, cleaning up, failures.
// `dsj run` reads and checks these fields and refuses to start with them; the operator acts by
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dsj::jobspec {

enum class CleanPods {
  Running,  ///< of a finished job: pods that still run are deleted, ended ones keep their logs
  All,
  None,  ///< nothing is deleted but what still runs after the save timeout
};

/// Who places the gang as a whole; the ordinary scheduler places pod by pod.
enum class GangScheduler { None, Volcano, Kueue };

struct Scheduling {
  GangScheduler scheduler = GangScheduler::None;
  std::string queue;           ///< Volcano's Queue (empty: its default), Kueue's LocalQueue
  std::string priority_class;  ///< a PriorityClass, for Kueue a WorkloadPriorityClass; empty: none
  std::optional<int64_t> min_available;  ///< pods that are placed together; absent: all
};

struct RunPolicy {
  std::optional<int64_t> active_deadline_seconds;   ///< from start, or from the last resume
  std::optional<int64_t> startup_deadline_seconds;  ///< until the first attempt runs
  std::optional<int64_t> ttl_seconds_after_finished;
  CleanPods clean_pods = CleanPods::Running;
  Scheduling scheduling;
};

enum class FailureAction {
  FailJob,
  Restart,           ///< charged to the restart budget
  RestartUncounted,  ///< not charged
};

/// Takes a failure when every condition that is given holds.
struct FailureRule {
  std::string name;
  FailureAction action = FailureAction::Restart;
  std::vector<int> exit_codes;
  bool exit_codes_not_in = false;           ///< operator NotIn; 0 never matches
  std::vector<std::string> reasons;         ///< the agent's, or the pod's
  std::vector<std::string> pod_conditions;  ///< types that are True: "DisruptionTarget"
};

struct FailurePolicy {
  std::vector<FailureRule> rules;           ///< the first that matches; else the operator's own
  int64_t node_grace_seconds = 30;          ///< a node may be away for so long
  int64_t force_delete_after_seconds = 60;  ///< then its pods are given up; > the agents' lease
  bool exclude_failed_nodes = true;         ///< a replacement does not go back there
};

struct Policies {
  bool suspend = false;
  RunPolicy run;
  FailurePolicy failure;
  int64_t save_timeout_seconds = 600;   ///< checkpoint.onSuspend.timeoutSeconds
  int64_t step_timeout_seconds = 1800;  ///< liveness.stepTimeoutSeconds
};

}  // namespace dsj::jobspec
