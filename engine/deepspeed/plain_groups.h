// Assigns parameters to param groups for a checkpoint without ZeRO, whose file does not name them.
// Internal to engine/deepspeed. A pure function.
#pragma once

#include <string>
#include <vector>

#include "engine/deepspeed/optim_states.h"
#include "engine/deepspeed/ranges.h"

namespace dsj::deepspeed {

/// For each group, in the optimizer's order, indices of `parameters`, which are in the module's
/// order. One group has all parameters. Two groups are the matrices and the rest, as trainers split
/// them for weight decay, in the order that matches the sizes of the states. `fused`: a group is
/// one flat vector; else each parameter has its own states. BadInput: neither order matches, or
/// there are more groups.
Result<std::vector<std::vector<size_t>>> plain_groups(const std::vector<Parameter>& parameters,
                                                      const OptimStates& optim, bool fused,
                                                      const std::string& path);

}  // namespace dsj::deepspeed
