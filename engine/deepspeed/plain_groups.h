// Which parameters are in which param group of a checkpoint without ZeRO, whose file does not say it. Internal to
// engine/deepspeed. A pure function.
#pragma once

#include <string>
#include <vector>

#include "engine/deepspeed/optim_states.h"
#include "engine/deepspeed/ranges.h"

namespace dsj::deepspeed {

/// Indices into `parameters`, which are the module's in its order, for each group in the optimizer's
/// order. One group is all of them. Two are those with a matrix's shape and the rest, as trainers
/// split them for weight decay, in the order that the sizes of the states allow. `fused`: a group is
/// one flat vector, else each parameter has states of its own. BadInput: neither order fits, or
/// there are more groups.
Result<std::vector<std::vector<size_t>>> plain_groups(const std::vector<Parameter>& parameters,
                                                      const OptimStates& optim, bool fused,
                                                      const std::string& path);

}  // namespace dsj::deepspeed
