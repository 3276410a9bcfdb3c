// Defects that a test plants between the parts, to see whether the simulation finds them. They lie
// in the seams that the production code has anyway: the decision and its carrying out (functions),
// the transport and the sinks (ports), the simulated agents; or in what the simulation does in
// place of threads: the lease's rounds, the way from the cache to the queue.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kube/http.h"
#include "operator/serve/controller.h"

namespace dsj::op::sim {

struct AgentBugs {
  bool attempt_falls = false;         ///< a new agent 0 starts counting at 1
  bool completes_early = false;       ///< exits Completed before the last step is saved
  bool tells_save_before_it = false;  ///< lastSaved is told when the stop begins
  bool ignores_suspend = false;       ///< never stops
  bool charges_twice = false;         ///< adds to the account what the account has
};

/// Between the watches and the cache, or between a write's answer and the cache.
struct CacheBugs {
  bool ignores_deletions = false;   ///< a watch's Deleted
  bool keeps_what_is_gone = false;  ///< a list after the first removes nothing
  bool takes_old_pods = false;      ///< an older version of a pod over a newer one
  bool takes_late_answers = false;  ///< the answer to a write, some seconds after it
};

struct QueueBugs {
  bool loses_changes_in_a_pass = false;  ///< what changes while its key is in work
  bool rests_for_minutes = false;        ///< after each pass
};

struct LeaseBugs {
  bool takes_held = false;             ///< waits a second for a holder, not its lease's duration
  bool leads_without_renewal = false;  ///< until it sees another holder
  bool forgets_the_holder = false;     ///< makes a deleted Lease at once, whoever held it
};

struct Bug {
  std::string name;
  std::function<Plan(const Observed&, Time)> decide;  ///< instead of reconcile
  std::function<void(kube::Request&)> rewrite;        ///< of the operator's requests
  AgentBugs agents;
  CacheBugs cache;
  QueueBugs queue;
  LeaseBugs lease;
  CarryOut carry_out;  ///< instead of apply
  /// Answers a request in the server's place.
  std::function<std::optional<kube::Response>(const kube::Request&)> answer;
  /// The Scenario (scenario.h) in which alone it shows; -1: any.
  int scenario = -1;
};

const std::vector<Bug>& planted_bugs();

}  // namespace dsj::op::sim
