// Initial values of a new adapter and of a reward model's new score. The distributions are PEFT's
// and transformers'. The generator is our own: an element depends on seed and name, not on ranks.
#pragma once

#include <cstdint>
#include <span>

#include "job/layout/lora.h"
#include "job/layout/partition.h"

namespace dsj::zero {

/// Writes elements [offset, offset + out.size()) of one parameter. lora_A [r, in]: uniform in
/// +-1/sqrt(in) (Kaiming's with a = sqrt(5)); for Gaussian normal with standard deviation 1/rank.
/// lora_B [out, r]: zeros; for Random uniform in +-1/sqrt(r). `rank`: the adapter's, of which one of
/// all experts has as many for each.
void initial_adapter(const layout::Slot& slot, AdapterInit init, int64_t rank, uint64_t seed,
                     int64_t offset, std::span<float> out);

/// The same for a new score (layout::Parameter::drawn): normal with mean 0, as in transformers.
void initial_score(const layout::Slot& slot, uint64_t seed, double deviation, int64_t offset,
                   std::span<float> out);

}  // namespace dsj::zero
