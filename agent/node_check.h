// A pod's look at its own node: before its first ranks, and again after a rank of it failed by
// itself. health/node_health.h judges, the log and the metrics tell, and this says whether the pod
// has to go elsewhere.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/health/node_health.h"
#include "job/spec/policies.h"

namespace dsj::agent {

class NodeCheck {
 public:
  struct Result {
    std::string unfit;              ///< why ranks must not start here; empty: they may
    std::vector<std::string> told;  ///< everything else that was found
    size_t problems = 0;
  };

  NodeCheck(std::unique_ptr<NodeProbe> probe, const NodeNeeds& needs,
            jobspec::NodeHealthAction action)
      : probe_(std::move(probe)), needs_(needs), action_(action) {}

  /// Blocks for some milliseconds; worker 0 asks the API server, for three seconds at most.
  Result look();

 private:
  const std::unique_ptr<NodeProbe> probe_;
  NodeNeeds needs_;
  const jobspec::NodeHealthAction action_;
};

}  // namespace dsj::agent
