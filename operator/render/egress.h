// Rules for each job's NetworkPolicy that limit what its pods may reach, from the operator's
// options. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/result.h"

namespace dsj::op {

/// Parses a JSON list of NetworkPolicyEgressRules and completes it as an API server does: each port
/// has a protocol, and empty lists are removed. Otherwise the operator would update its own policy
/// forever. Empty text means no limit: nullopt. BadInput if the text has another shape.
Result<std::optional<nlohmann::json>> egress_from_text(const std::string& text);

}  // namespace dsj::op
