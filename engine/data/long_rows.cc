#include "engine/data/long_rows.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "common/check.h"

namespace dsj::data {
namespace {

/// Whether there is a target before `end`; the first label of a row does not count.
bool learns(std::span<const int32_t> labels, size_t end) {
  for (size_t i = 1; i < std::min(end, labels.size()); ++i)
    if (labels[i] != kIgnoredLabel) return true;
  return false;
}

void add_row(std::span<const int32_t> labels, size_t limit, int64_t weight, LongRows& sums) {
  if (labels.size() <= limit) return;
  sums.cut += weight;
  sums.tokens += weight * static_cast<int64_t>(labels.size() - limit);
  if (learns(labels, labels.size()) && !learns(labels, limit)) sums.without_target += weight;
}

/// Each row of a pair counts.
void add(const Sample& whole, size_t limit, int64_t weight, LongRows& sums) {
  const std::span<const int32_t> labels = whole.labels;
  const auto second = static_cast<size_t>(whole.second);
  if (second > 0) add_row(labels.first(second), limit, weight, sums);
  add_row(labels.subspan(second), limit, weight, sums);
}

}  // namespace

Result<LongRows> count_long_rows(const Dataset& dataset, int64_t first, int64_t count, int threads,
                                 int64_t bytes_max) {
  DSJ_CHECK(first >= 0 && count >= 0 && first + count <= dataset.rows() && threads >= 1);
  std::vector<int64_t> candidates;
  int64_t bytes = 0;
  for (int64_t row = first; row < first + count; ++row) {
    if (dataset.tokens_at_most(row) <= dataset.max_seq_length()) continue;
    candidates.push_back(row);
    bytes += dataset.bytes_of(row);
  }
  const int64_t stride = std::max<int64_t>(1, (bytes + bytes_max - 1) / bytes_max);
  LongRows sums{.rows = count, .estimated = stride > 1};
  std::mutex mutex;
  std::optional<Error> error;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    LongRows own;
    for (size_t i; (i = next.fetch_add(static_cast<size_t>(stride))) < candidates.size();) {
      const int64_t left = static_cast<int64_t>(candidates.size() - i);
      const auto whole = dataset.whole(candidates[i]);
      if (!whole) {
        const std::lock_guard lock(mutex);
        if (!error) error = whole.error();
        break;
      }
      add(*whole, static_cast<size_t>(dataset.max_seq_length()), std::min(stride, left), own);
    }
    const std::lock_guard lock(mutex);
    sums.cut += own.cut;
    sums.tokens += own.tokens;
    sums.without_target += own.without_target;
  };
  std::vector<std::jthread> others;
  const int useful = static_cast<int>(std::min<int64_t>(threads, std::ssize(candidates)));
  for (int i = 1; i < useful; ++i) others.emplace_back(work);
  work();
  others.clear();
  if (error) return std::unexpected(*error);
  return sums;
}

}  // namespace dsj::data
