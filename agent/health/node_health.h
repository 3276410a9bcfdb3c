// Judges whether ranks may start on a node. Pure.
#pragma once

#include <string>
#include <vector>

#include "agent/health/node_facts.h"

namespace dsj::agent {

/// What this worker requires of its node.
struct NodeNeeds {
  int64_t memory_request = 0;  ///< memory request of the container in bytes; 0 if none
  int ranks = 1;               ///< of this worker
  int gpus = 0;                ///< GPUs that the container requests
};

struct NodeProblem {
  /// Another node would be better. False if the problem concerns the pod or its volume, or is not
  /// certain; then it is only reported.
  bool of_the_node = false;
  std::string what;  ///< found, expected, what to do
  bool operator==(const NodeProblem&) const = default;
};

/// All problems, in a fixed order. Empty if ranks may start.
std::vector<NodeProblem> judge_node(const NodeFacts& facts, const NodeNeeds& needs);

/// The problems of the node in one sentence; empty if there are none.
std::string unfit_because(const std::vector<NodeProblem>& problems);

}  // namespace dsj::agent
