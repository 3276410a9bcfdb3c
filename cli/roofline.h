// `dsj plan --device`: the roofline of a job's step on a GPU, for printing (job/roofline).
#pragma once

#include <nlohmann/json.hpp>

#include "common/result.h"
#include "job/plan/memory_input.h"
#include "job/roofline/gpus.h"
#include "job/spec/job.h"

namespace dsj::cli {

/// Errors: BadInput if the job's kernels are not modelled, with path, reason and alternative.
Result<nlohmann::json> roofline_json(const jobspec::Job& job, const plan::MemoryInput& input,
                                     const roofline::Gpu& gpu);

}  // namespace dsj::cli
