// Reads the policies of a DeepSpeedJob. Internal to jobspec.
#pragma once

#include <nlohmann/json.hpp>

#include "job/spec/field_reader.h"
#include "job/spec/policies.h"

namespace dsj::jobspec {

/// Reads spec.suspend, runPolicy, failurePolicy, liveness, checkpoint.
Policies read_policies(const nlohmann::json& spec, FieldReader& reader);

}  // namespace dsj::jobspec
