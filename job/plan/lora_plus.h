// LoRA+ (Hayou et al. 2024): the matrices B of adapters have a multiple of the optimizer's learning
// rate. The groups are PEFT's (create_loraplus_optimizer): B and all trained vectors (norms, biases,
// DoRA's magnitudes) have the raised rate; A and all other matrices have the optimizer's. Pure.
#pragma once

#include <vector>

#include "job/dsconfig/config/resolved.h"
#include "job/layout/partition.h"

namespace dsj::plan {

bool has_raised_rate(const layout::Slot& slot);

/// For each slot, whether its rate is raised. Empty if the run does not use LoRA+.
std::vector<bool> raised_rates_of_flat(const layout::FlatLayout& flat,
                                       const dsconfig::ResolvedConfig& config);

}  // namespace dsj::plan
