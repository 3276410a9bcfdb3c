// What the pods of jobs may reach: rules from the operator's options for each job's NetworkPolicy. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/result.h"

namespace dsj::op {

/// A JSON list of NetworkPolicyEgressRules, as an API server completes them: a port has its protocol,
/// and no list is empty. Otherwise the operator would mend its own policy forever. Empty text:
/// nullopt, no limit. BadInput: another shape.
Result<std::optional<nlohmann::json>> egress_from_text(const std::string& text);

}  // namespace dsj::op
