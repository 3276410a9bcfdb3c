// The checks of a worker's node, with the values from its pod.
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

/// A pod's check of its own node: before its first ranks, and again after one of its ranks failed
/// by itself. health/node_health.h judges; this class decides whether the pod must move to another
/// node.
class NodeCheck {
 public:
  struct Result {
    std::string unfit;              ///< why ranks must not start here; empty if they may
    std::vector<std::string> told;  ///< all other findings
    size_t problems = 0;
  };

  NodeCheck(std::unique_ptr<NodeProbe> probe, const NodeNeeds& needs,
            jobspec::NodeHealthAction action)
      : probe_(std::move(probe)), needs_(needs), action_(action) {}

  /// Blocks for some milliseconds, and on worker 0 up to three seconds for the API server.
  Result look();

 private:
  const std::unique_ptr<NodeProbe> probe_;
  NodeNeeds needs_;
  const jobspec::NodeHealthAction action_;
};

/// `api` is used for the API server's time; null if this worker may not use it. `root` is the
/// prefix of the mounted paths. The directories in `config` must exist.
std::unique_ptr<NodeCheck> make_node_check(const Pod& pod, const AgentConfig& config,
                                           const std::string& root, kube::Transport* api,
                                           const kube::Cancel& cancel);

/// This pod's meter for the links between nodes; null if it does not take part.
std::unique_ptr<LinkMeter> make_link_meter(const Pod& pod, int replicas);

}  // namespace dsj::agent
