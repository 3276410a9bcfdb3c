// Selects the nodes that new pods of a job avoid: nodes that were found unfit (unhealthy_nodes.h),
// and nodes that were lost with a pod of the job and are not ready again. Pure.
// Tested by: tests/operator/unhealthy_nodes_test.cc
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "operator/observe/observed.h"
#include "operator/observe/own_status.h"

namespace dsj::op {

/// Nodes on which a pod was given up, from status.failureHistory. Empty if the value is not a list.
std::set<std::string> lost_nodes(const nlohmann::json& failure_history);

/// The nodes that a pod avoids if it is created now. A lost node that is not in the cache (it was
/// removed, or nodes cannot be read) is left to the scheduler, because the operator could not see
/// it return.
std::set<std::string> nodes_to_avoid(const Observed& observed, const Accepted& accepted,
                                     const OwnStatus& status);

}  // namespace dsj::op
