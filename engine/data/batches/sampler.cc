#include "engine/data/batches/sampler.h"

#include <algorithm>

#include "common/check.h"
#include "engine/data/batches/permutation.h"

namespace dsj::data {
namespace {

int64_t divided_up(int64_t n, int64_t by) {
  return n / by + (n % by != 0);
}

}  // namespace

Sampler::Sampler(SamplerOptions options) : options_(options), epoch_rows_(options.rows) {
  DSJ_CHECK(options.rows >= 1 && options.accumulation >= 1 && options.world >= 1 &&
            options.micro_batch >= 1);
  if (options.drop_last && options.rows >= global_batch())
    epoch_rows_ = options.rows / global_batch() * global_batch();
  const int64_t micro_step_rows = options.world * options.micro_batch;
  if (options.drop_last_micro_batches) epoch_rows_ -= epoch_rows_ % micro_step_rows;
  DSJ_CHECK(epoch_rows_ >= 1);
  epoch_micro_steps_ = divided_up(epoch_rows_, micro_step_rows);
  steps_per_epoch_ = divided_up(epoch_micro_steps_, options.accumulation);
  if (!options.lengths) return;
  DSJ_CHECK(options.shuffle && std::ssize(*options.lengths) == options.rows);
  groups_.emplace(options.lengths, options.micro_batch * options.accumulation, options.seed);
}

int64_t Sampler::global_batch() const {
  return options_.accumulation * options_.world * options_.micro_batch;
}

int64_t Sampler::micro_steps(int64_t step) const {
  DSJ_CHECK(step >= 0);
  const int64_t before = step % steps_per_epoch_ * options_.accumulation;
  return std::min(options_.accumulation, epoch_micro_steps_ - before);
}

int64_t Sampler::micro_steps_before(int64_t step, int64_t micro_step) const {
  DSJ_CHECK(micro_step >= 0 && micro_step < micro_steps(step));
  return step % steps_per_epoch_ * options_.accumulation + micro_step;
}

int64_t Sampler::micro_rows(int64_t step, int64_t micro_step) const {
  const int64_t before = micro_steps_before(step, micro_step) * options_.micro_batch;
  if (options_.world > 1) return options_.micro_batch;
  return std::min(options_.micro_batch, epoch_rows_ - before);
}

int64_t Sampler::index(int64_t step, int64_t micro_step, int64_t rank, int64_t row) const {
  DSJ_CHECK(rank >= 0 && rank < options_.world && row >= 0 && row < micro_rows(step, micro_step));
  const int64_t batch = micro_steps_before(step, micro_step) * options_.world + rank;
  const int64_t place = (batch * options_.micro_batch + row) % epoch_rows_;
  if (!options_.shuffle) return place;
  const auto of = static_cast<uint64_t>(epoch(step));
  return groups_ ? groups_->row(of, place) : permuted(place, options_.rows, options_.seed, of);
}

}  // namespace dsj::data
