#include "engine/data/files/numpy_random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <utility>

namespace dsj::data {
namespace {

/// SeedSequence(seed).generate_state(4, uint64), with its constants.
std::array<uint64_t, 4> seed_words(uint64_t seed) {
  constexpr size_t kPool = 4;
  uint32_t constant = 0x43b0d7e5;
  const auto hashed = [&](uint32_t value) {
    value ^= constant;
    constant *= 0x931e8875;
    value *= constant;
    return value ^ (value >> 16);
  };
  std::array<uint32_t, kPool> pool{};
  for (size_t i = 0; i < kPool; ++i)
    pool[i] = hashed(i < 2 ? static_cast<uint32_t>(seed >> (32 * i)) : 0);
  for (size_t from = 0; from < kPool; ++from) {
    for (size_t to = 0; to < kPool; ++to) {
      if (from == to) continue;
      const uint32_t mixed = 0xca01f9dd * pool[to] - 0x4973f715 * hashed(pool[from]);
      pool[to] = mixed ^ (mixed >> 16);
    }
  }
  constant = 0x8b51f9dd;
  std::array<uint64_t, 4> words{};
  for (size_t i = 0; i < 8; ++i) {
    uint32_t value = pool[i % kPool] ^ constant;
    constant *= 0x58f38ded;
    value *= constant;
    words[i / 2] |= static_cast<uint64_t>(value ^ (value >> 16)) << (32 * (i % 2));
  }
  return words;
}

}  // namespace

NumpyRandom::NumpyRandom(uint64_t seed) {
  const auto words = seed_words(seed);
  increment_ = ((static_cast<Wide>(words[2]) << 64 | words[3]) << 1) | 1;
  step();
  state_ += static_cast<Wide>(words[0]) << 64 | words[1];
  step();
}

void NumpyRandom::step() {
  constexpr Wide kMultiplier = static_cast<Wide>(0x2360ED051FC65DA4) << 64 | 0x4385DF649FCCF645;
  state_ = state_ * kMultiplier + increment_;
}

uint64_t NumpyRandom::next64() {
  step();
  const uint64_t folded = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
  return std::rotr(folded, static_cast<int>(state_ >> 122));
}

uint32_t NumpyRandom::next32() {
  if (upper_) return *std::exchange(upper_, std::nullopt);
  const uint64_t both = next64();
  upper_ = static_cast<uint32_t>(both >> 32);
  return static_cast<uint32_t>(both);
}

double NumpyRandom::uniform() {
  return static_cast<double>(next64() >> 11) * 0x1p-53;
}

uint32_t NumpyRandom::at_most(uint32_t most) {
  if (most == 0) return 0;
  const uint32_t mask = ~uint32_t{0} >> std::countl_zero(most);
  uint32_t value = next32() & mask;
  while (value > most) value = next32() & mask;
  return value;
}

std::vector<int64_t> NumpyRandom::permutation(int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i-- > 1;)
    std::swap(order[i], order[at_most(static_cast<uint32_t>(i))]);
  return order;
}

WeightedChoice::WeightedChoice(std::span<const double> weights) : sums_(weights.size()) {
  std::partial_sum(weights.begin(), weights.end(), sums_.begin());
  const double all = sums_.back();
  for (double& sum : sums_) sum /= all;
}

size_t WeightedChoice::draw(NumpyRandom& random) const {
  const auto found = std::ranges::upper_bound(sums_, random.uniform());
  return static_cast<size_t>(std::min(found, sums_.end() - 1) - sums_.begin());
}

}  // namespace dsj::data
