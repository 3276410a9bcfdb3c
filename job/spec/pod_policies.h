// What an agent obeys from the start of its pod: the fields whose row says kPod, as a manifest writes them, in one variable
// of the pod. It is not in job.json, which a revision follows from: an edit reaches the next pod and no running one. A new
// such field is a member of policies.h, its row, and what the agent does. Pure.
// Tested by: tests/job/spec/schema_test.cc
#pragma once

#include <string>

#include "common/result.h"
#include "job/spec/policies.h"

namespace dsj::jobspec {

inline constexpr char kEnvPolicies[] = "DSJ_POLICIES";

/// {"failurePolicy": {"nodeHealth": {"action": "Move", ...}}}
std::string pod_policies_text(const Policies& policies);

/// A field that the operator did not write has its default; one that this agent does not know is ignored: the two may be of
/// different releases. BadInput: it is no object, or a value is not what the row takes.
Result<Policies> policies_from_pod(const std::string& text);

}  // namespace dsj::jobspec
