#include "engine/data/batches/group_by_length.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/data/batches/permutation.h"
#include "engine/data/batches/sampler.h"

namespace dsj::data {
namespace {

using Lengths = std::shared_ptr<const std::vector<int32_t>>;

Lengths lengths_of(int64_t rows) {
  std::vector<int32_t> lengths;
  for (int64_t i = 0; i < rows; ++i) lengths.push_back(static_cast<int32_t>(1 + i * 7919 % 97));
  return std::make_shared<const std::vector<int32_t>>(std::move(lengths));
}

/// The order of an epoch, computed with whole lists as its description says.
std::vector<int64_t> whole_epoch(const std::vector<int32_t>& lengths, int64_t batch, uint64_t seed,
                                 uint64_t epoch) {
  const int64_t rows = std::ssize(lengths);
  const int64_t mega = std::max<int64_t>(1, std::min<int64_t>(rows / (batch * 4), 50)) * batch;
  std::vector<std::vector<int64_t>> groups;
  for (int64_t i = 0; i < rows; ++i) {
    if (i % mega == 0) groups.emplace_back();
    groups.back().push_back(permuted(i, rows, seed, epoch));
  }
  for (auto& group : groups)
    std::ranges::stable_sort(group, std::greater<>(), [&](int64_t row) { return lengths[row]; });
  const auto longest = std::ranges::max_element(
      groups, {}, [&](const std::vector<int64_t>& group) { return lengths[group.front()]; });
  std::swap(groups.front().front(), longest->front());
  std::vector<int64_t> order;
  for (const auto& group : groups) order.insert(order.end(), group.begin(), group.end());
  return order;
}

TEST(GroupByLength, OrdersMegaBatchesLikeHuggingFace) {
  for (const int64_t rows : {1, 3, 8, 100, 1000, 5003}) {
    for (const int64_t batch : {1, 4, 6}) {
      const Lengths lengths = lengths_of(rows);
      GroupByLength groups(lengths, batch, 42);
      for (const uint64_t epoch : {0, 1, 7}) {
        const auto want = whole_epoch(*lengths, batch, 42, epoch);
        std::set<int64_t> seen;
        for (int64_t place = 0; place < rows; ++place) {
          const int64_t row = groups.row(epoch, place);
          ASSERT_EQ(row, want[place]) << rows << " rows, batch " << batch << ", place " << place;
          seen.insert(row);
        }
        EXPECT_EQ(std::ssize(seen), rows);
      }
    }
  }
}

TEST(GroupByLength, PlacesCanBeReadInAnyOrder) {
  const Lengths lengths = lengths_of(700);
  GroupByLength ordered(lengths, 2, 3), asked(lengths, 2, 3);
  std::vector<int64_t> want;
  for (uint64_t epoch = 0; epoch < 2; ++epoch)
    for (int64_t place = 0; place < 700; ++place) want.push_back(ordered.row(epoch, place));
  for (int64_t i = 0; i < 1400; ++i) {
    const int64_t at = i * 617 % 1400;
    EXPECT_EQ(asked.row(static_cast<uint64_t>(at / 700), at % 700), want[at]);
  }
}

TEST(GroupByLength, TheSamplerUsesIt) {
  const Lengths lengths = lengths_of(400);
  const SamplerOptions options{
      .rows = 400, .accumulation = 2, .world = 2, .micro_batch = 3, .seed = 9, .lengths = lengths};
  const Sampler sampler(options);
  const auto want = whole_epoch(*lengths, 3 * 2, 9, 1);
  int64_t place = 0;  // step 34 begins the second epoch
  for (int64_t micro = 0; micro < 2; ++micro)
    for (int64_t rank = 0; rank < 2; ++rank)
      for (int64_t row = 0; row < 3; ++row, ++place)
        EXPECT_EQ(sampler.index(34, micro, rank, row), want[place]);
  // The purpose of grouping: the rows of a micro-batch have nearly the same length.
  const auto spread = [&](const Sampler& one) {
    int64_t sum = 0;
    for (int64_t step = 0; step < 30; ++step) {
      int32_t low = INT32_MAX, high = 0;
      for (int64_t row = 0; row < 3; ++row) {
        const int32_t length = (*lengths)[one.index(step, 0, 0, row)];
        low = std::min(low, length), high = std::max(high, length);
      }
      sum += high - low;
    }
    return sum;
  };
  SamplerOptions plain = options;
  plain.lengths = nullptr;
  EXPECT_LT(spread(sampler) * 4, spread(Sampler(plain)));
}

TEST(GroupByLength, RequiresShuffle) {
  EXPECT_DEATH(Sampler({.rows = 4, .shuffle = false, .lengths = lengths_of(4)}), "shuffle");
  EXPECT_DEATH(Sampler({.rows = 4, .lengths = lengths_of(5)}), "rows");
}

}  // namespace
}  // namespace dsj::data
