// Nodes that new pods of a job keep away from: those that were found unfit (unhealthy_nodes.h), and those that were
// lost with a pod of the job and are not back. Pure.
// Tested by: tests/operator/unhealthy_nodes_test.cc
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "operator/observe/observed.h"
#include "operator/observe/own_status.h"

namespace dsj::op {

/// On which a pod was given up, by status.failureHistory. Of anything else than a list: none.
std::set<std::string> lost_nodes(const nlohmann::json& failure_history);

/// What a pod that is made now avoids. A lost node that nobody sees (it was removed, or nodes may not be read) is left to
/// the scheduler: nobody could tell that it is back.
std::set<std::string> nodes_to_avoid(const Observed& observed, const Accepted& accepted,
                                     const OwnStatus& status);

}  // namespace dsj::op
