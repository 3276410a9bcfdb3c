// Reads the policies of a DeepSpeedJob. Internal to jobspec.
#pragma once

#include <nlohmann/json.hpp>

#include "common/jobspec/field_reader.h"
#include "common/jobspec/policies.h"

namespace dsj::jobspec {

/// Reads spec.suspend, runPolicy, failurePolicy, liveness, checkpoint.
Policies read_policies(const nlohmann::json& spec, FieldReader& reader);

}  // namespace dsj::jobspec
