#include "engine/data/sampler.h"

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

Sampler::Sampler(SamplerOptions options) : options_(options), epoch_rows_(options.rows) {
  DSJ_CHECK(options.rows >= 1 && options.accumulation >= 1 && options.world >= 1 &&
            options.micro_batch >= 1);
  // If there are fewer rows than a global batch, drop_last would leave none: they follow on.
  if (options.drop_last && options.rows >= global_batch())
    epoch_rows_ = options.rows / global_batch() * global_batch();
}

int64_t Sampler::global_batch() const {
  return options_.accumulation * options_.world * options_.micro_batch;
}

int64_t Sampler::position(int64_t step, int64_t micro_step, int64_t rank, int64_t row) const {
  DSJ_CHECK(step >= 0 && micro_step >= 0 && micro_step < options_.accumulation && rank >= 0 &&
            rank < options_.world && row >= 0 && row < options_.micro_batch);
  return ((step * options_.accumulation + micro_step) * options_.world + rank) *
             options_.micro_batch +
         row;
}

int64_t Sampler::epoch(int64_t step, int64_t micro_step, int64_t rank, int64_t row) const {
  return position(step, micro_step, rank, row) / epoch_rows_;
}

int64_t Sampler::index(int64_t step, int64_t micro_step, int64_t rank, int64_t row) const {
  const int64_t at = position(step, micro_step, rank, row);
  const int64_t place = at % epoch_rows_;
  if (!options_.shuffle) return place;
  return permuted(place, options_.rows, options_.seed, static_cast<uint64_t>(at / epoch_rows_));
}

}  // namespace dsj::data
