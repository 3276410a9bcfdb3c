#include "engine/data/batches/micro_batch_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace dsj::data {
namespace {

std::vector<RowSize> sizes_of(int64_t rows) {
  std::vector<RowSize> sizes;
  for (int64_t i = 0; i < rows; ++i) {
    const auto tokens = static_cast<int32_t>(2 + i * 7919 % 61);
    sizes.push_back({tokens, static_cast<int32_t>(i * 31 % tokens)});
  }
  return sizes;
}

TEST(MicroBatchSizes, EqualTheLargestThatTheSamplerDeals) {
  const auto sizes = sizes_of(101);
  const Sampler sampler({.rows = 101, .accumulation = 2, .world = 3, .micro_batch = 4, .seed = 8});
  const auto got = largest_micro_batches(sampler, sizes, 9);
  ASSERT_EQ(got.size(), 3u) << "4, and what divides it";
  MicroBatchSize four;
  int32_t one = 0;
  for (int64_t step = 0; step < 9; ++step)
    for (int64_t micro = 0; micro < sampler.micro_steps(step); ++micro)
      for (int64_t rank = 0; rank < 3; ++rank) {
        int64_t tokens = 0, targets = 0;
        for (int64_t row = 0; row < 4; ++row) {
          const RowSize& size = sizes[sampler.index(step, micro, rank, row)];
          tokens += size.tokens, targets += size.targets;
          one = std::max(one, size.tokens);
        }
        four = {std::max(four.tokens, tokens), std::max(four.targets, targets)};
      }
  EXPECT_EQ(got.at(4).tokens, four.tokens);
  EXPECT_EQ(got.at(4).targets, four.targets);
  EXPECT_EQ(got.at(1).tokens, one);
  // The same rows at twice the accumulation.
  const Sampler twos({.rows = 101, .accumulation = 4, .world = 3, .micro_batch = 2, .seed = 8});
  EXPECT_EQ(got.at(2).tokens, largest_micro_batches(twos, sizes, 9).at(2).tokens);
}

TEST(MicroBatchSizes, ALongRunIsBoundedByItsLongestRows) {
  const auto sizes = sizes_of(50);
  const Sampler sampler({.rows = 50, .micro_batch = 4});
  const auto exact = largest_micro_batches(sampler, sizes, 100);
  const auto bound = largest_micro_batches(sampler, sizes, 100, /*dealt_max=*/399);
  auto sorted = sizes;
  std::ranges::sort(sorted, std::greater<>(), &RowSize::tokens);
  EXPECT_EQ(bound.at(2).tokens, sorted[0].tokens + sorted[1].tokens);
  for (const auto& [rows, size] : exact) {
    EXPECT_LE(size.tokens, bound.at(rows).tokens);
    EXPECT_LE(size.targets, bound.at(rows).targets);
  }
  // Fewer rows than a micro-batch: it is short, and the bound counts some rows twice.
  const Sampler few({.rows = 1, .micro_batch = 4});
  const std::vector<RowSize> one = {{7, 3}};
  EXPECT_EQ(largest_micro_batches(few, one, 100, 1).at(4).tokens, 28);
  EXPECT_EQ(largest_micro_batches(few, one, 100).at(4).tokens, 7);
  // One rank, an epoch of 4 + 1 rows: the short micro-batch never contains rows of the next epoch.
  const std::vector<RowSize> five = {{1, 0}, {1, 0}, {1, 0}, {1, 0}, {50, 9}};
  const Sampler in_order({.rows = 5, .micro_batch = 4, .shuffle = false});
  const auto most = largest_micro_batches(in_order, five, 4);
  EXPECT_EQ(most.at(4).tokens, 50);
  EXPECT_EQ(most.at(2).tokens, 50);
  EXPECT_EQ(most.at(1).targets, 9);
}

}  // namespace
}  // namespace dsj::data
