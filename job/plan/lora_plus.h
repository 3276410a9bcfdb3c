// LoRA+ (Hayou et al. 2024): the matrices B of adapters learn at a rate of their own, a multiple of the
// optimizer's. The groups are PEFT's (create_loraplus_optimizer): B, and every vector that is trained
// (norms, biases, DoRA's magnitudes), have the raised rate; A and other matrices have the optimizer's. Pure.
#pragma once

#include <vector>

#include "job/dsconfig/resolved.h"
#include "job/layout/partition.h"

namespace dsj::plan {

bool has_raised_rate(const layout::Slot& slot);

/// [slot]; empty: none.
std::vector<bool> raised_rates_of_flat(const layout::FlatLayout& flat,
                                       const dsconfig::ResolvedConfig& config);

}  // namespace dsj::plan
