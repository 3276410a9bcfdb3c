#include "engine/data/sampler.h"

#include "common/check.h"
#include "engine/data/permutation.h"

namespace dsj::data {
Sampler::Sampler(SamplerOptions options) : options_(options), epoch_rows_(options.rows) {
  DSJ_CHECK(options.rows >= 1 && options.accumulation >= 1 && options.world >= 1 &&
            options.micro_batch >= 1);
  // If there are fewer rows than a global batch, drop_last would leave none: they follow on.
  if (options.drop_last && options.rows >= global_batch())
    epoch_rows_ = options.rows / global_batch() * global_batch();
  if (!options.lengths) return;
  DSJ_CHECK(options.shuffle && std::ssize(*options.lengths) == options.rows);
  groups_.emplace(options.lengths, options.micro_batch * options.accumulation, options.seed);
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
  const auto epoch = static_cast<uint64_t>(at / epoch_rows_);
  return groups_ ? groups_->row(epoch, place)
                 : permuted(place, options_.rows, options_.seed, epoch);
}

}  // namespace dsj::data
