// Whether ranks may start on a node. Pure.
#pragma once

#include <string>
#include <vector>

#include "agent/health/node_facts.h"

namespace dsj::agent {

/// What this worker needs of its node.
struct NodeNeeds {
  int64_t memory_request = 0;  ///< bytes that the scheduler set aside for the container; 0: none
  int ranks = 1;               ///< of this worker
  int gpus = 0;                ///< that the container asks for
};

struct NodeProblem {
  /// Another node would do better. False: it concerns the pod or its volume, or is not sure, and is
  /// only told.
  bool of_the_node = false;
  std::string what;  ///< found, expected, what to do
  bool operator==(const NodeProblem&) const = default;
};

/// Everything that is wrong, in a fixed order. Empty: ranks may start.
std::vector<NodeProblem> judge_node(const NodeFacts& facts, const NodeNeeds& needs);

/// The problems of the node in one sentence; empty: it has none.
std::string unfit_because(const std::vector<NodeProblem>& problems);

}  // namespace dsj::agent
