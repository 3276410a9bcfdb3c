#include "engine/data/batches/group_by_length.h"

#include <algorithm>

#include "common/check.h"
#include "engine/data/batches/permutation.h"

namespace dsj::data {
namespace {

constexpr int64_t kBatchesMax = 50;

}  // namespace

GroupByLength::GroupByLength(std::shared_ptr<const std::vector<int32_t>> lengths, int64_t batch,
                             uint64_t seed)
    : lengths_(std::move(lengths)), seed_(seed) {
  DSJ_CHECK(lengths_ && !lengths_->empty() && batch >= 1);
  const int64_t batches = std::min(std::ssize(*lengths_) / (batch * 4), kBatchesMax);
  group_rows_ = std::max<int64_t>(1, batches) * batch;
}

std::vector<int64_t> GroupByLength::sorted(uint64_t epoch, int64_t group) const {
  const int64_t count = std::ssize(*lengths_);
  std::vector<int64_t> rows;
  for (int64_t i = group * group_rows_; i < std::min(count, (group + 1) * group_rows_); ++i)
    rows.push_back(permuted(i, count, seed_, epoch));
  std::ranges::stable_sort(rows, std::greater<>(),
                           [this](int64_t row) { return (*lengths_)[row]; });
  return rows;
}

void GroupByLength::begin_epoch(uint64_t epoch) {
  const int64_t count = std::ssize(*lengths_);
  const int32_t longest = *std::ranges::max_element(*lengths_);
  int64_t place = 0;  // of the first row of the greatest length, which leads its mega-batch
  while ((*lengths_)[permuted(place, count, seed_, epoch)] < longest) ++place;
  longest_row_ = permuted(place, count, seed_, epoch);
  longest_place_ = place / group_rows_ * group_rows_;
  first_row_ = sorted(epoch, 0).front();
  epoch_ = static_cast<int64_t>(epoch);
  group_ = -1;
}

int64_t GroupByLength::row(uint64_t epoch, int64_t place) {
  DSJ_CHECK(place >= 0 && place < std::ssize(*lengths_));
  if (epoch_ != static_cast<int64_t>(epoch)) begin_epoch(epoch);
  if (place == 0) return longest_row_;
  if (place == longest_place_) return first_row_;
  if (const int64_t group = place / group_rows_; group != group_) {
    rows_ = sorted(epoch, group);
    group_ = group;
  }
  return rows_[place % group_rows_];
}

}  // namespace dsj::data
