#include "engine/data/batches/loader.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "common/check.h"

namespace dsj::data {

Loader::Loader(const Dataset& dataset, Sampler sampler, LoaderOptions options)
    : Loader([&dataset](int64_t row) { return dataset.at(row); }, sampler, options) {
  DSJ_CHECK(dataset.rows() == sampler.options().rows);
}

Loader::Loader(Source source, Sampler sampler, LoaderOptions options)
    : source_(std::move(source)), sampler_(sampler), options_(options) {
  DSJ_CHECK(options.ahead_max >= 1 && options.first_step >= 0);
  DSJ_CHECK(!options.packs || options.packs->count() == sampler.options().rows);
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Loader::~Loader() = default;

void Loader::run(const std::stop_token& stop) {
  for (int64_t step = options_.first_step;; ++step) {
    for (int64_t micro_step = 0; micro_step < sampler_.micro_steps(step); ++micro_step) {
      Result<MicroBatch> made = make(step, micro_step);
      const bool failed = !made;
      std::unique_lock lock(mutex_);
      const bool space =
          changed_.wait(lock, stop, [this] { return std::ssize(ready_) < options_.ahead_max; });
      if (!space) return;  // stopped
      ready_.push_back(std::move(made));
      changed_.notify_all();
      if (failed) return;
    }
  }
}

Result<MicroBatch> Loader::make(int64_t step, int64_t micro_step) const {
  std::vector<Sample> samples;
  for (int64_t i = 0; i < sampler_.micro_rows(step, micro_step); ++i) {
    const int64_t dealt = sampler_.index(step, micro_step, options_.rank, i);
    if (options_.packs) {
      DSJ_TRY(std::vector<Sample> pack, options_.packs->samples(dealt, source_));
      std::ranges::move(pack, std::back_inserter(samples));
    } else {
      DSJ_TRY(Sample sample, source_(dealt));
      samples.push_back(std::move(sample));
    }
  }
  return MicroBatch{.step = step,
                    .micro_step = micro_step,
                    .epoch = sampler_.epoch(step),
                    .batch = collate(samples)};
}

Result<MicroBatch> Loader::next() {
  if (failed_) return std::unexpected(*failed_);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !ready_.empty(); });
  Result<MicroBatch> made = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  if (!made) failed_ = made.error();
  return made;
}

}  // namespace dsj::data
