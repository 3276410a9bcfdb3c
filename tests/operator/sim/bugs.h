// Defects that a test plants between the parts, to see whether the simulation finds them. They lie
// in the seams that the production code has anyway: the decision (a function), the transport (a
// port), the simulated agents.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kube/http.h"
#include "operator/reconcile.h"

namespace dsj::op::sim {

struct AgentBugs {
  bool attempt_falls = false;         ///< a new agent 0 starts counting at 1
  bool completes_early = false;       ///< exits Completed before the last step is saved
  bool tells_save_before_it = false;  ///< lastSaved is told when the stop begins
  bool ignores_suspend = false;       ///< never stops
};

struct Bug {
  std::string name;
  std::function<Plan(const Observed&, Time)> decide;  ///< instead of reconcile
  std::function<void(kube::Request&)> rewrite;        ///< of the operator's requests
  AgentBugs agents;
  bool takes_held_leases = false;  ///< waits a second for a holder, not its lease's duration
};

const std::vector<Bug>& planted_bugs();

}  // namespace dsj::op::sim
