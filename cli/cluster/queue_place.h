// Where a job waits: its position in Kueue's queue, or the state of Volcano's PodGroup.
#pragma once

#include <string>
#include <vector>

#include "cli/cluster/pods.h"

namespace dsj::cli {

/// One line to print; empty if the job uses no queue or its pods are admitted. Mentions objects
/// that the caller may not read or the cluster does not serve.
std::string queue_place(Session& session, const Json& job, const std::vector<PodRef>& pods);

}  // namespace dsj::cli
