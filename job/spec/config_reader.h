// Reads spec.deepspeed: the ds_config in the manifest, in a file or in a ConfigMap. Internal to jobspec.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "job/spec/job.h"
#include "job/spec/origin.h"
#include "job/spec/overrides.h"

namespace dsj::jobspec {

/// Sets job.ds_config and its source. job.launcher must be set. `overrides` are of the ds_config's
/// keys. Every error becomes a finding of the job.
void read_ds_config(const nlohmann::json& spec, const std::vector<Override>& overrides,
                    const Origin& origin, Job& job);

}  // namespace dsj::jobspec
