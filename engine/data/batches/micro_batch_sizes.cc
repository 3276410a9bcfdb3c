#include "engine/data/batches/micro_batch_sizes.h"

#include <algorithm>
#include <vector>

#include "common/check.h"

namespace dsj::data {
namespace {

/// Tracks the largest group of `rows` consecutive rows in the order of dealing.
class Largest {
 public:
  explicit Largest(int64_t rows) : rows_(rows) {}
  void deal(const RowSize& size) {
    now_.tokens += size.tokens;
    now_.targets += size.targets;
    if (++dealt_ == rows_) end();
  }
  /// Ends a group that has fewer rows.
  void end() {
    most_.tokens = std::max(most_.tokens, now_.tokens);
    most_.targets = std::max(most_.targets, now_.targets);
    now_ = {};
    dealt_ = 0;
  }
  int64_t rows() const { return rows_; }
  const MicroBatchSize& most() const { return most_; }

 private:
  int64_t rows_, dealt_ = 0;
  MicroBatchSize now_, most_;
};

/// The sum of the `count` largest values. If there are fewer rows, some count more than once.
int64_t sum_of_largest(std::span<const RowSize> sizes, int32_t RowSize::*what, int64_t count) {
  std::vector<int64_t> all;
  for (const RowSize& size : sizes) all.push_back(size.*what);
  const auto taken = std::min(count, std::ssize(all));
  std::partial_sort(all.begin(), all.begin() + taken, all.end(), std::greater<>());
  int64_t sum = (count - taken) * all.front();
  for (int64_t i = 0; i < taken; ++i) sum += all[i];
  return sum;
}

}  // namespace

std::map<int64_t, MicroBatchSize> largest_micro_batches(const Sampler& sampler,
                                                        std::span<const RowSize> sizes,
                                                        int64_t steps, int64_t dealt_max) {
  const SamplerOptions& o = sampler.options();
  DSJ_CHECK(std::ssize(sizes) == o.rows && steps >= 1);
  std::vector<Largest> kinds;
  for (int64_t rows = 1; rows <= o.micro_batch; ++rows)
    if (o.micro_batch % rows == 0) kinds.emplace_back(rows);
  std::map<int64_t, MicroBatchSize> most;
  if (steps > dealt_max / sampler.global_batch()) {
    for (const Largest& kind : kinds)
      most[kind.rows()] = {sum_of_largest(sizes, &RowSize::tokens, kind.rows()),
                           sum_of_largest(sizes, &RowSize::targets, kind.rows())};
    return most;
  }
  for (int64_t step = 0; step < steps; ++step)
    for (int64_t micro = 0; micro < sampler.micro_steps(step); ++micro)
      for (int64_t rank = 0; rank < o.world; ++rank) {
        for (int64_t row = 0; row < sampler.micro_rows(step, micro); ++row) {
          const RowSize& size = sizes[sampler.index(step, micro, rank, row)];
          for (Largest& kind : kinds) kind.deal(size);
        }
        for (Largest& kind : kinds) kind.end();
      }
  for (const Largest& kind : kinds) most[kind.rows()] = kind.most();
  return most;
}

}  // namespace dsj::data
