// Turns an out-of-memory failure of a GPU into an error for users: which class of memory asked for
// how much, and what `dsj plan` would change.
#pragma once

#include <optional>
#include <string>

#include "common/result.h"
#include "engine/memory/shortage.h"
#include "engine/train/inputs/inputs.h"
#include "job/plan/fit.h"

namespace dsj::train {

/// The memory model's input for this run, as in `dsj plan`.
plan::FitInput fit_input(const Inputs& in, const RankEnv& env);

/// Kind Environment. `shortage`: unset if the allocator gave only `what`. `plan`: unset if the
/// inputs were not read yet. The hint is the first change with which the memory model fits into the
/// device. If the model fits already, it names what the model does not count: other processes on
/// the GPU, and longer rows than planned.
Error out_of_device_memory(const std::optional<memory::Shortage>& shortage, const std::string& what,
                           const std::optional<plan::FitInput>& plan);

}  // namespace dsj::train
