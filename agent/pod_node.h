// The checks of the node that a worker's pod is on, put together from what its agent has.
// Tested by: tests/run/fake/pod_run_test.cc
#pragma once

#include <memory>
#include <string>

#include "agent/config.h"
#include "agent/links/link_meter.h"
#include "agent/node_check.h"
#include "agent/pod.h"
#include "kube/http.h"

namespace dsj::agent {

/// `api`: for the time of the API server; null: this worker may not ask. `root`: before the paths
/// that the operator mounts. The directories of `config` exist.
std::unique_ptr<NodeCheck> make_node_check(const Pod& pod, const AgentConfig& config,
                                           const std::string& root, kube::Transport* api,
                                           const kube::Cancel& cancel);

/// Where this pod takes part in measuring the links between nodes; null: it does not.
std::unique_ptr<LinkMeter> make_link_meter(const Pod& pod, int replicas);

}  // namespace dsj::agent
