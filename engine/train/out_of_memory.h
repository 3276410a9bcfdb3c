// GPU memory that ran out, as an error for people: which class of memory asked for how much, and
// what `dsj plan` would change.
#pragma once

#include <optional>
#include <string>

#include "common/result.h"
#include "engine/memory/shortage.h"
#include "engine/train/inputs.h"
#include "job/plan/fit.h"

namespace dsj::train {

/// What the memory model counts for this run, as `dsj plan` does.
plan::FitInput fit_input(const Inputs& in, const RankEnv& env);

/// Environment. `shortage` unset: the allocator told nothing but `what`. `plan` unset: the run's
/// inputs were not read yet. The hint is the first change that makes the memory model fit into the
/// device; where the model fits already, what has no model: other processes on the GPU, and longer
/// rows than planned.
Error out_of_device_memory(const std::optional<memory::Shortage>& shortage, const std::string& what,
                           const std::optional<plan::FitInput>& plan);

}  // namespace dsj::train
