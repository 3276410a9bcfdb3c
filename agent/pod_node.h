// The checks of the node that a worker's pod is on, put together from what its agent has.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/config.h"
#include "agent/health/node_health.h"
#include "agent/links/link_meter.h"
#include "agent/pod.h"
#include "job/spec/policies.h"
#include "kube/http.h"

namespace dsj::agent {

/// A pod's look at its own node: before its first ranks, and again after a rank of it failed by itself.
/// health/node_health.h judges, the log and the metrics tell, and this says whether the pod has to go elsewhere.
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

/// `api`: for the time of the API server; null: this worker may not ask. `root`: before the paths
/// that the operator mounts. The directories of `config` exist.
std::unique_ptr<NodeCheck> make_node_check(const Pod& pod, const AgentConfig& config,
                                           const std::string& root, kube::Transport* api,
                                           const kube::Cancel& cancel);

/// Where this pod takes part in measuring the links between nodes; null: it does not.
std::unique_ptr<LinkMeter> make_link_meter(const Pod& pod, int replicas);

}  // namespace dsj::agent
