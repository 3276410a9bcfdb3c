#include "engine/data/batches/loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>

namespace dsj::data {
namespace {

/// Row i is the single token i.
Result<Sample> row_as_token(int64_t row) {
  const auto id = static_cast<int32_t>(row);
  return Sample{.input_ids = {id}, .labels = {id}};
}

const SamplerOptions kOptions{
    .rows = 23, .accumulation = 2, .world = 2, .micro_batch = 3, .seed = 5};

TEST(Loader, GivesTheSamplersRowsInOrder) {
  const Sampler sampler(kOptions);
  for (const int64_t ahead : {1, 2, 8}) {
    Loader loader(row_as_token, sampler, {.rank = 1, .first_step = 3, .ahead_max = ahead});
    for (int64_t step = 3; step < 12; ++step) {
      for (int64_t micro_step = 0; micro_step < sampler.micro_steps(step); ++micro_step) {
        const auto got = loader.next();
        ASSERT_TRUE(got);
        EXPECT_EQ(got->step, step);
        EXPECT_EQ(got->micro_step, micro_step);
        EXPECT_EQ(got->epoch, sampler.epoch(step));
        std::vector<int64_t> rows;
        for (int64_t row = 0; row < 3; ++row) {
          rows.push_back(sampler.index(step, micro_step, 1, row));
        }
        EXPECT_EQ(got->batch.input_ids, rows);
      }
    }
  }
}

TEST(Loader, GivesAShortMicroBatchWhereAnEpochEnds) {
  const Sampler sampler({.rows = 5, .accumulation = 2, .micro_batch = 2, .shuffle = false});
  Loader loader(row_as_token, sampler, {});
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    for (const std::vector<int64_t>& rows :
         {std::vector<int64_t>{0, 1}, std::vector<int64_t>{2, 3}, std::vector<int64_t>{4}}) {
      const auto got = loader.next();
      ASSERT_TRUE(got);
      EXPECT_EQ(got->batch.input_ids, rows);
      EXPECT_EQ(got->epoch, epoch);
      EXPECT_EQ(got->step, 2 * epoch + rows[0] / 4);
    }
  }
}

TEST(Loader, AnErrorComesInsteadOfItsMicroBatchAndRepeats) {
  const Sampler sampler({.rows = 100, .shuffle = false});
  std::atomic<int64_t> last = -1;
  Loader loader(
      [&last](int64_t row) -> Result<Sample> {
        last = row;
        if (row == 4) return bad_input("row 4 is bad");
        return row_as_token(row);
      },
      sampler, {.ahead_max = 8});
  for (int64_t step = 0; step < 4; ++step) EXPECT_TRUE(loader.next());
  for (int round = 0; round < 3; ++round) {
    const auto got = loader.next();
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().message, "row 4 is bad");
  }
  EXPECT_EQ(last, 4);  // no row after the error was requested
}

TEST(Loader, HoldsNoMoreThanAheadMax) {
  const Sampler sampler({.rows = 1000, .shuffle = false});
  std::atomic<int64_t> made = 0;
  std::latch four(4);
  {
    Loader loader(
        [&](int64_t row) {
          if (++made <= 4) four.count_down();
          return row_as_token(row);
        },
        sampler, {.ahead_max = 3});
    four.wait();  // three in the queue, one in hand
    for (int64_t taken = 1; taken <= 20; ++taken) {
      ASSERT_TRUE(loader.next());
      EXPECT_LE(made, taken + 4);
    }
  }
  EXPECT_LE(made, 24);  // stopped while the queue was full, without a deadlock
}

TEST(Loader, APackHasItsRowsInOrder) {
  std::vector<RowSize> rows;
  for (int32_t i = 0; i < 40; ++i) rows.push_back({1 + i * 13 % 9, 0});
  const Packs packs(rows, 12);
  const auto source = [&](int64_t row) -> Result<Sample> {
    const auto count = static_cast<size_t>(rows[row].tokens);
    const auto id = static_cast<int32_t>(row);
    return Sample{std::vector<int32_t>(count, id), std::vector<int32_t>(count, id)};
  };
  const Sampler sampler({.rows = packs.count(), .world = 2, .micro_batch = 2});
  Loader loader(source, sampler, {.rank = 1, .first_step = 2, .packs = &packs});
  for (int64_t step = 2; step < 10; ++step) {
    const auto got = loader.next();
    ASSERT_TRUE(got);
    std::vector<int64_t> want, lengths;
    for (int64_t i = 0; i < 2; ++i) {
      for (const auto& [row, begin, tokens] : packs.parts(sampler.index(step, 0, 1, i))) {
        want.insert(want.end(), rows[row].tokens, row);
        lengths.push_back(rows[row].tokens);
      }
    }
    EXPECT_EQ(got->batch.input_ids, want);
    EXPECT_EQ(got->batch.row_lengths, lengths) << "each row stays a row of its own";
  }
}

TEST(Loader, CanStopBeforeAnythingWasTaken) {
  const Sampler sampler({.rows = 10});
  for (int round = 0; round < 50; ++round) {
    std::atomic<int64_t> made = 0;
    {
      Loader loader(
          [&made](int64_t row) {
            ++made;
            return row_as_token(row);
          },
          sampler, {.ahead_max = 1});
    }
    EXPECT_LE(made, 2) << "one in the queue, one in hand";
  }
}

}  // namespace
}  // namespace dsj::data
