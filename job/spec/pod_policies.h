// The policies that an agent gets when its pod is created: the fields whose row has kPod, as a manifest writes them, in
// one variable of the pod. They are not in job.json, which determines the revision: an edit affects the next pod and no
// running one. A new such field is a member of policies.h, its row, and the agent's reaction. Pure.
// Tested by: tests/job/spec/schema_test.cc
#pragma once

#include <string>

#include "common/result.h"
#include "job/spec/policies.h"

namespace dsj::jobspec {

inline constexpr char kEnvPolicies[] = "DSJ_POLICIES";

/// {"failurePolicy": {"nodeHealth": {"action": "Move", ...}}}
std::string pod_policies_text(const Policies& policies);

/// A field that the operator did not write gets its default; an unknown field is ignored, because operator and agent
/// may have different releases. Errors: BadInput if it is not an object, or a value does not fit its row.
Result<Policies> policies_from_pod(const std::string& text);

}  // namespace dsj::jobspec
