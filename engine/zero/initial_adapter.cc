#include "engine/zero/initial_adapter.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace dsj::zero {
namespace {

/// splitmix64's finalizer: a bijection that mixes every bit.
uint64_t mixed(uint64_t z) {
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

uint64_t key_of(const layout::Slot& slot, uint64_t seed) {
  uint64_t key = mixed(seed);
  for (const char c : slot.name) key = mixed(key ^ static_cast<unsigned char>(c));
  return key;
}

}  // namespace

void initial_adapter(const layout::Slot& slot, AdapterInit init, int64_t rank, uint64_t seed,
                     int64_t offset, std::span<float> out) {
  const bool is_a = slot.name.find(".lora_A.") != std::string::npos;
  if (!is_a && init != AdapterInit::Random) {
    std::ranges::fill(out, 0.0f);
    return;
  }
  if (init == AdapterInit::Gaussian) {
    initial_score(slot, seed, 1.0 / static_cast<double>(rank), offset, out);
    return;
  }
  const uint64_t key = key_of(slot, seed);
  const double bound = 1.0 / std::sqrt(static_cast<double>(slot.shape[1]));
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t bits = mixed(key + static_cast<uint64_t>(offset) + i) >> 11;  // 53 bits
    out[i] = static_cast<float>(bound * (static_cast<double>(bits) * 0x1p-52 - 1.0));
  }
}

void initial_score(const layout::Slot& slot, uint64_t seed, double deviation, int64_t offset,
                   std::span<float> out) {
  const uint64_t key = key_of(slot, seed);
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t at = 2 * (static_cast<uint64_t>(offset) + i);
    const auto uniform = [&](uint64_t n) {  // in (0, 1)
      return (static_cast<double>(mixed(key + n) >> 11) + 0.5) * 0x1p-53;
    };
    const double radius = std::sqrt(-2 * std::log(uniform(at)));
    out[i] =
        static_cast<float>(deviation * radius * std::cos(2 * std::numbers::pi * uniform(at + 1)));
  }
}

}  // namespace dsj::zero
