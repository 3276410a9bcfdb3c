#include "engine/data/sampler.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "engine/data/permutation.h"

namespace dsj::data {
namespace {

/// All rows of one step, in the order of their positions.
std::vector<int64_t> step_rows(const Sampler& sampler, int64_t step) {
  std::vector<int64_t> rows;
  const auto& o = sampler.options();
  for (int64_t micro_step = 0; micro_step < o.accumulation; ++micro_step) {
    for (int64_t rank = 0; rank < o.world; ++rank) {
      for (int64_t row = 0; row < o.micro_batch; ++row) {
        rows.push_back(sampler.index(step, micro_step, rank, row));
      }
    }
  }
  return rows;
}

TEST(Sampler, WithoutShuffleItIsTheFilesOrder) {
  const Sampler sampler(
      {.rows = 10, .accumulation = 2, .world = 2, .micro_batch = 3, .shuffle = false});
  EXPECT_EQ(step_rows(sampler, 0), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1}));
  EXPECT_EQ(sampler.index(1, 0, 0, 0), 2);
  EXPECT_EQ(sampler.index(0, 1, 1, 2), 1);
  EXPECT_EQ(sampler.epoch(0, 1, 1, 0), 0);
  EXPECT_EQ(sampler.epoch(0, 1, 1, 1), 1);
}

TEST(Sampler, DropLastStartsTheNextEpochWithAWholeBatch) {
  SamplerOptions options{
      .rows = 10, .accumulation = 1, .world = 2, .micro_batch = 2, .shuffle = false};
  EXPECT_EQ(step_rows(Sampler(options), 2), (std::vector<int64_t>{8, 9, 0, 1}));
  options.drop_last = true;
  const Sampler dropping(options);
  EXPECT_EQ(step_rows(dropping, 1), (std::vector<int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(step_rows(dropping, 2), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(dropping.epoch(2, 0, 0, 0), 1);
  options.shuffle = true;  // which rows are left out changes with the epoch's order
  const Sampler shuffled(options);
  std::set<int64_t> seen;
  for (int64_t step = 0; step < 40; ++step)
    for (const int64_t row : step_rows(shuffled, step)) seen.insert(row);
  EXPECT_EQ(seen.size(), 10u);
}

TEST(Sampler, EveryEpochIsAPermutation) {
  for (const int64_t rows : {1, 2, 3, 5, 16, 17, 100, 257, 1000}) {
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<int64_t> seen;
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t row = permuted(i, rows, 42, epoch);
        ASSERT_TRUE(row >= 0 && row < rows);
        seen.insert(row);
      }
      EXPECT_EQ(std::ssize(seen), rows) << "epoch " << epoch;
    }
  }
}

TEST(Sampler, SeedAndEpochChangeTheOrder) {
  const auto order = [](uint64_t seed, uint64_t epoch) {
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < 50; ++i) rows.push_back(permuted(i, 1000, seed, epoch));
    return rows;
  };
  EXPECT_NE(order(1, 0), order(2, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_EQ(order(1, 1), order(1, 1));
}

TEST(Sampler, ShuffledRowsAreSpreadEvenly) {
  // Where do the first 1000 of 10,000 positions go? Each tenth of the file should get about 100;
  // 5 standard deviations (of 9.5) are far from any drift a bad mixer shows.
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<int> tenth(10);
    int64_t neighbours = 0;
    int64_t before = -2;
    for (int64_t i = 0; i < 1000; ++i) {
      const int64_t row = permuted(i, 10000, seed, 0);
      ++tenth[static_cast<std::size_t>(row / 1000)];
      neighbours += row == before + 1;
      before = row;
    }
    for (const int count : tenth) EXPECT_NEAR(count, 100, 48) << "seed " << seed;
    EXPECT_LT(neighbours, 6);
  }
}

TEST(Sampler, SameGlobalBatchSameRowsAtAnyWorldSize) {
  const auto sampler = [](int64_t accumulation, int64_t world, int64_t micro) {
    return Sampler({.rows = 103,
                    .accumulation = accumulation,
                    .world = world,
                    .micro_batch = micro,
                    .seed = 7});
  };
  for (int64_t step = 0; step < 30; ++step) {
    const auto one = step_rows(sampler(1, 1, 12), step);
    EXPECT_EQ(step_rows(sampler(3, 2, 2), step), one);
    EXPECT_EQ(step_rows(sampler(2, 3, 2), step), one);
    EXPECT_EQ(step_rows(sampler(1, 4, 3), step), one);
  }
  EXPECT_EQ(sampler(3, 2, 2).global_batch(), 12);
}

TEST(Sampler, TheOrderItselfIsPartOfTheResult) {
  // Written down from a run: a change here changes every loss and breaks resume.
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < 12; ++i) rows.push_back(permuted(i, 100, 42, 0));
  EXPECT_EQ(rows, (std::vector<int64_t>{33, 27, 45, 81, 35, 17, 4, 67, 1, 77, 90, 3}));
}

}  // namespace
}  // namespace dsj::data
