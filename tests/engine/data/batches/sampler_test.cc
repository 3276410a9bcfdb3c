#include "engine/data/batches/sampler.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "engine/data/batches/permutation.h"

namespace dsj::data {
namespace {

/// All rows of one step, by micro-step, rank and place.
std::vector<int64_t> step_rows(const Sampler& sampler, int64_t step) {
  std::vector<int64_t> rows;
  const auto& o = sampler.options();
  for (int64_t micro_step = 0; micro_step < sampler.micro_steps(step); ++micro_step) {
    for (int64_t rank = 0; rank < o.world; ++rank) {
      for (int64_t row = 0; row < sampler.micro_rows(step, micro_step); ++row) {
        rows.push_back(sampler.index(step, micro_step, rank, row));
      }
    }
  }
  return rows;
}

TEST(Sampler, WithoutShuffleTheOrderIsTheFiles) {
  const Sampler sampler(
      {.rows = 10, .accumulation = 2, .world = 2, .micro_batch = 3, .shuffle = false});
  EXPECT_EQ(step_rows(sampler, 0), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1}));
  EXPECT_EQ(sampler.index(1, 0, 0, 0), 0);
  EXPECT_EQ(sampler.index(0, 1, 1, 2), 1);
  EXPECT_EQ(sampler.epoch(0), 0);
  EXPECT_EQ(sampler.epoch(1), 1);
}

/// 33 rows, 32 per step: the second step of an epoch has the last row.
TEST(Sampler, AnEpochEndsWithAShortStep) {
  SamplerOptions options{
      .rows = 33, .accumulation = 8, .world = 2, .micro_batch = 2, .shuffle = false};
  const Sampler ranks(options);
  EXPECT_EQ(ranks.steps_per_epoch(), 2);
  EXPECT_EQ(ranks.micro_steps(0), 8);
  EXPECT_EQ(ranks.micro_steps(1), 1);
  EXPECT_EQ(step_rows(ranks, 1), (std::vector<int64_t>{32, 0, 1, 2})) << "filled up";
  EXPECT_EQ(ranks.index(2, 0, 0, 0), 0);
  options.world = 1, options.accumulation = 16;
  const Sampler one(options);
  EXPECT_EQ(one.micro_steps(1), 1);
  EXPECT_EQ(one.micro_rows(0, 15), 2);
  EXPECT_EQ(one.micro_rows(1, 0), 1);
  EXPECT_EQ(step_rows(one, 1), (std::vector<int64_t>{32}));
  EXPECT_EQ(step_rows(one, 3), (std::vector<int64_t>{32}));
}

/// 33 rows, 4 per micro-step of two ranks: one row is left out, but not the short step.
TEST(Sampler, TrainersDropLastLeavesOutRowsThatFillNoMicroStep) {
  SamplerOptions options{.rows = 35,
                         .accumulation = 5,
                         .world = 2,
                         .micro_batch = 2,
                         .shuffle = false,
                         .drop_last_micro_batches = true};
  const Sampler ranks(options);
  EXPECT_EQ(ranks.steps_per_epoch(), 2);
  EXPECT_EQ(ranks.micro_steps(1), 3);
  EXPECT_EQ(step_rows(ranks, 1).back(), 31);
  EXPECT_EQ(ranks.index(2, 0, 0, 0), 0);
  options.world = 1;
  const Sampler one(options);
  EXPECT_EQ(one.steps_per_epoch(), 4);
  EXPECT_EQ(one.micro_steps(3), 2);
  EXPECT_EQ(one.micro_rows(3, 1), 2) << "no short micro-batch";
}

/// An epoch of transformers and accelerate, written from their documentation: torch's
/// BatchSampler cuts the epoch's order into micro-batches; with drop_last it leaves out a short
/// one, and accelerate's BatchSamplerShard leaves out a round without a batch for every
/// process. Otherwise several processes take batches in turn; if the last round is not full,
/// rows follow from the beginning of the epoch, repeatedly if the epoch is shorter than a
/// round. A step takes `accumulation` rounds, the epoch's last step the rest.
std::vector<std::vector<std::vector<std::vector<int64_t>>>> steps_of_an_epoch(
    const std::vector<int64_t>& order, const SamplerOptions& o) {
  std::vector<std::vector<int64_t>> micro_batches;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i % static_cast<size_t>(o.micro_batch) == 0) micro_batches.emplace_back();
    micro_batches.back().push_back(order[i]);
  }
  if (o.drop_last_micro_batches) {
    if (std::ssize(micro_batches.back()) < o.micro_batch) micro_batches.pop_back();
    while (std::ssize(micro_batches) % o.world != 0) micro_batches.pop_back();
  } else if (o.world > 1) {
    size_t next = 0;
    const auto fill = [&](std::vector<int64_t>& batch) {
      while (std::ssize(batch) < o.micro_batch) batch.push_back(order[next++ % order.size()]);
    };
    fill(micro_batches.back());
    while (std::ssize(micro_batches) % o.world != 0) fill(micro_batches.emplace_back());
  }
  std::vector<std::vector<std::vector<std::vector<int64_t>>>> steps;
  const auto rounds = std::ssize(micro_batches) / o.world;
  for (int64_t round = 0; round < rounds; ++round) {
    if (round % o.accumulation == 0) steps.emplace_back();
    auto& ranks = steps.back().emplace_back();
    for (int64_t rank = 0; rank < o.world; ++rank)
      ranks.push_back(micro_batches[static_cast<size_t>(round * o.world + rank)]);
  }
  return steps;
}

TEST(Sampler, DealsEachEpochLikeTrainerAndAccelerate) {
  std::mt19937_64 draws(33);
  const auto draw = [&](int64_t most) {
    return 1 + static_cast<int64_t>(draws() % static_cast<uint64_t>(most));
  };
  int64_t short_steps = 0, filled = 0;
  for (int round = 0; round < 3000; ++round) {
    SamplerOptions o{.rows = draw(70),
                     .accumulation = draw(5),
                     .world = draw(5),
                     .micro_batch = draw(5),
                     .seed = draws() % 100,
                     .shuffle = draws() % 2 == 0,
                     .drop_last = draws() % 4 == 0};
    if (o.rows >= o.world * o.micro_batch) o.drop_last_micro_batches = draws() % 4 == 0;
    if (o.shuffle && draws() % 3 == 0) {
      std::vector<int32_t> lengths;
      for (int64_t row = 0; row < o.rows; ++row) lengths.push_back(static_cast<int32_t>(draw(9)));
      o.lengths = std::make_shared<const std::vector<int32_t>>(std::move(lengths));
    }
    const Sampler sampler(o);
    const int64_t batch = o.accumulation * o.world * o.micro_batch;
    const bool drops = o.drop_last && o.rows >= batch;
    GroupByLength groups(
        o.lengths ? o.lengths : std::make_shared<const std::vector<int32_t>>(o.rows, 1),
        o.accumulation * o.micro_batch, o.seed);
    int64_t step = 0;
    for (uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int64_t> order;
      for (int64_t place = 0; place < o.rows; ++place)
        order.push_back(o.lengths    ? groups.row(epoch, place)
                        : !o.shuffle ? place
                                     : permuted(place, o.rows, o.seed, epoch));
      if (drops) order.resize(static_cast<size_t>(o.rows / batch * batch));
      const auto expected = steps_of_an_epoch(order, o);
      if (o.drop_last_micro_batches)
        order.resize(order.size() - order.size() % static_cast<size_t>(o.world * o.micro_batch));
      ASSERT_EQ(sampler.steps_per_epoch(), std::ssize(expected));
      for (const auto& micro_steps : expected) {
        ASSERT_EQ(sampler.micro_steps(step), std::ssize(micro_steps));
        short_steps += std::ssize(micro_steps) < o.accumulation;
        EXPECT_EQ(sampler.epoch(step), static_cast<int64_t>(epoch));
        for (int64_t micro = 0; micro < std::ssize(micro_steps); ++micro) {
          for (int64_t rank = 0; rank < o.world; ++rank) {
            const auto& want = micro_steps[static_cast<size_t>(micro)][static_cast<size_t>(rank)];
            ASSERT_EQ(sampler.micro_rows(step, micro), std::ssize(want));
            for (int64_t row = 0; row < std::ssize(want); ++row)
              ASSERT_EQ(sampler.index(step, micro, rank, row), want[static_cast<size_t>(row)]);
          }
        }
        ++step;
      }
      // Every row once; the epoch's first rows again where ranks are filled up.
      std::multiset<int64_t> seen;
      for (int64_t of = step - sampler.steps_per_epoch(); of < step; ++of)
        for (const int64_t row : step_rows(sampler, of)) seen.insert(row);
      for (const int64_t row : order) ASSERT_GE(seen.count(row), 1u);
      const int64_t more = std::ssize(seen) - std::ssize(order);
      ASSERT_LT(more, o.world > 1 ? o.world * o.micro_batch : 1);
      filled += more > 0;
    }
  }
  EXPECT_GT(short_steps, 1000);
  EXPECT_GT(filled, 1000);
}

TEST(Sampler, DropLastStartsTheNextEpochWithAWholeBatch) {
  SamplerOptions options{
      .rows = 10, .accumulation = 1, .world = 2, .micro_batch = 2, .shuffle = false};
  EXPECT_EQ(step_rows(Sampler(options), 2), (std::vector<int64_t>{8, 9, 0, 1}));
  options.drop_last = true;
  const Sampler dropping(options);
  EXPECT_EQ(step_rows(dropping, 1), (std::vector<int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(step_rows(dropping, 2), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(dropping.epoch(2), 1);
  options.shuffle = true;  // the rows that are left out change with the epoch's order
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
  // The destinations of the first 1000 of 10,000 positions: each tenth of the file should get
  // about 100. A bad mixer deviates by more than 5 standard deviations (of 9.5).
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

/// In an epoch's last step (7 rows here) another number of ranks is filled up with other rows.
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
    EXPECT_EQ(one.size(), step % 9 == 8 ? 7u : 12u);
    for (const auto& other : {sampler(3, 2, 2), sampler(2, 3, 2), sampler(1, 4, 3)}) {
      auto rows = step_rows(other, step);
      ASSERT_GE(rows.size(), one.size());
      rows.resize(one.size());
      EXPECT_EQ(rows, one);
    }
  }
  EXPECT_EQ(sampler(3, 2, 2).global_batch(), 12);
}

TEST(Sampler, TheOrderItselfIsPartOfTheResult) {
  // Recorded from a run: a change here changes every loss and breaks resume.
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < 12; ++i) rows.push_back(permuted(i, 100, 42, 0));
  EXPECT_EQ(rows, (std::vector<int64_t>{33, 27, 45, 81, 35, 17, 4, 67, 1, 77, 90, 3}));
}

}  // namespace
}  // namespace dsj::data
