#include "engine/data/batches/cluster_order.h"

#include <algorithm>

#include "common/check.h"
#include "engine/data/batches/permutation.h"

namespace dsj::data {
namespace {

/// Separates the pass numbers of different clusters and phases.
constexpr int kPassBits = 40;

}  // namespace

ClusterOrder::ClusterOrder(std::shared_ptr<const Clusters> clusters, int64_t batch, uint64_t seed)
    : clusters_(std::move(clusters)), batch_(batch), seed_(seed) {
  DSJ_CHECK(clusters_ && clusters_->count() >= 1 && batch >= 1);
  rows_.resize(static_cast<size_t>(batch));
  counts_.resize(static_cast<size_t>(clusters_->count()));
}

int64_t ClusterOrder::phase_of(int64_t step) const {
  const auto& firsts = clusters_->first_steps;
  return std::ranges::upper_bound(firsts, step) - firsts.begin() - 1;
}

int64_t ClusterOrder::cluster_of(int64_t phase, int64_t place) const {
  const auto& starts = clusters_->starts;
  const int64_t admitted = starts[static_cast<size_t>(phase) + 1];
  const auto key =
      (static_cast<uint64_t>(phase) << kPassBits) + static_cast<uint64_t>(place / admitted);
  const int64_t at = permuted(place % admitted, admitted, seed_, key);
  return std::upper_bound(starts.begin(), starts.begin() + phase + 2, at) - starts.begin() - 1;
}

void ClusterOrder::count_until(int64_t step) {
  std::ranges::fill(counts_, 0);
  const auto& starts = clusters_->starts;
  const int64_t last = phase_of(step);
  for (int64_t phase = 0; phase <= last; ++phase) {
    const auto at = static_cast<size_t>(phase);
    const int64_t end = phase == last ? step : clusters_->first_steps[at + 1];
    const int64_t dealt = (end - clusters_->first_steps[at]) * batch_;
    const int64_t admitted = starts[at + 1], passes = dealt / admitted;
    if (passes > 0)
      for (size_t one = 0; one <= at; ++one)
        counts_[one] += passes * (starts[one + 1] - starts[one]);
    for (int64_t place = passes * admitted; place < dealt; ++place)
      ++counts_[static_cast<size_t>(cluster_of(phase, place))];
  }
}

void ClusterOrder::deal(int64_t step) {
  const int64_t phase = phase_of(step);
  const int64_t first = (step - clusters_->first_steps[static_cast<size_t>(phase)]) * batch_;
  for (int64_t i = 0; i < batch_; ++i) {
    const auto cluster = static_cast<size_t>(cluster_of(phase, first + i));
    const int64_t begin = clusters_->starts[cluster], size = clusters_->starts[cluster + 1] - begin;
    const int64_t count = counts_[cluster]++;
    const auto key =
        (static_cast<uint64_t>(cluster) << kPassBits) + static_cast<uint64_t>(count / size);
    const int64_t at = begin + permuted(count % size, size, ~seed_, key);
    rows_[static_cast<size_t>(i)] = clusters_->rows[static_cast<size_t>(at)];
  }
  step_ = step;
}

int64_t ClusterOrder::row(int64_t step, int64_t place) {
  DSJ_CHECK(step >= 0 && place >= 0 && place < batch_);
  if (step != step_) {
    if (step != step_ + 1) count_until(step);
    deal(step);
  }
  return rows_[static_cast<size_t>(place)];
}

}  // namespace dsj::data
