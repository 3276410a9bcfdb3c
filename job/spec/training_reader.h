// Reads spec.training. Internal to jobspec.
#pragma once

#include <nlohmann/json.hpp>

#include "job/spec/job.h"
#include "job/spec/origin.h"

namespace dsj::jobspec {

/// Sets job.training, with absolute paths. job.launcher must be set. Every error becomes a finding
/// of the job.
void read_training(const nlohmann::json& spec, const Origin& origin, Job& job);

}  // namespace dsj::jobspec
