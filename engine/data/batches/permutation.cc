#include "engine/data/batches/permutation.h"

#include <bit>

#include "common/check.h"

namespace dsj::data {
namespace {

constexpr int kRounds = 6;

/// splitmix64's finalizer: every output bit depends on every input bit.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

}  // namespace

int64_t permuted(int64_t position, int64_t rows, uint64_t seed, uint64_t epoch) {
  DSJ_CHECK(rows >= 1 && position >= 0 && position < rows);
  if (rows == 1) return 0;
  const int bits = std::bit_width(static_cast<uint64_t>(rows - 1));
  const int half = (bits + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  const uint64_t key = mix(mix(seed) ^ epoch);
  auto value = static_cast<uint64_t>(position);
  do {
    uint64_t left = value >> half, right = value & mask;
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (mix(key + static_cast<uint64_t>(round) + (right << 8)) & mask);
      left = right;
      right = next;
    }
    value = left << half | right;
  } while (value >= static_cast<uint64_t>(rows));
  return static_cast<int64_t>(value);
}

}  // namespace dsj::data
