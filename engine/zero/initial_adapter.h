// What an adapter begins with: PEFT's distribution, from a generator of our own, so that an element
// depends on seed and name alone and not on who owns it.
#pragma once

#include <cstdint>
#include <span>

#include "common/layout/partition.h"

namespace dsj::zero {

/// Elements [offset, offset + out.size()) of a lora_A [r, in]: uniform in +-1/sqrt(in), which is
/// Kaiming's with a = sqrt(5); of a lora_B: zeros.
void initial_adapter(const layout::Slot& slot, uint64_t seed, int64_t offset, std::span<float> out);

}  // namespace dsj::zero
