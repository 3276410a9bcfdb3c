// Schedules against numbers worked out by hand and the rules of DeepSpeed's versions.
#include "job/dsconfig/config/data_efficiency_config.h"

#include <gtest/gtest.h>

namespace dsj::dsconfig {
namespace {

DifficultySchedule linear(int64_t min, int64_t max, int64_t total, int64_t step) {
  return {.min = min, .max = max, .total_steps = total, .difficulty_step = step};
}

std::vector<int64_t> first(const DifficultySchedule& schedule, int64_t steps) {
  std::vector<int64_t> all;
  for (int64_t step = 1; step <= steps; ++step) all.push_back(schedule.at(step));
  return all;
}

TEST(DifficultySchedule, GrowsLinearlyInWholeSteps) {
  const auto schedule = linear(8, 1024, 40000, 8);
  for (const auto& [step, expected] : {std::pair<int64_t, int64_t>{1, 8},
                                       {314, 8},
                                       {315, 16},
                                       {20000, 512},
                                       {39686, 1016},
                                       {39999, 1016},
                                       {40000, 1024},
                                       {40001, 1024},
                                       {INT64_MAX, 1024}})
    EXPECT_EQ(schedule.at(step), expected) << "step " << step;
}

TEST(DifficultySchedule, OldVersionsRoundBelowTheMinimumAndNewOnesUp) {
  auto schedule = linear(20, 64, 12, 16);
  EXPECT_EQ(first(schedule, 5), (std::vector<int64_t>{32, 32, 32, 32, 32})) << "0.19.8";
  schedule.may_round_below_min = true;
  EXPECT_EQ(first(schedule, 12),
            (std::vector<int64_t>{16, 16, 16, 32, 32, 32, 32, 48, 48, 48, 48, 64}))
      << "0.18.9, as recorded";
  EXPECT_EQ(schedule.lowest(12), 16);
}

TEST(DifficultySchedule, TheLastLevelIsTheMaximumItself) {
  const auto schedule = linear(8, 60, 4, 16);
  EXPECT_EQ(first(schedule, 6), (std::vector<int64_t>{16, 32, 32, 48, 60, 60}));
  EXPECT_EQ(schedule.lowest(100), 16);
  EXPECT_EQ(schedule.highest(3), 32);
  EXPECT_EQ(schedule.highest(5), 60);
}

TEST(DifficultySchedule, ARootGrowsFasterAtFirst) {
  DifficultySchedule schedule = linear(0, 100, 100, 1);
  schedule.type = "fixed_root";
  schedule.root_degree = 2;
  EXPECT_EQ(schedule.at(25), 50);
  EXPECT_EQ(schedule.at(100), 100);
  schedule.root_degree = 1;
  EXPECT_EQ(schedule.at(25), 25);
}

DifficultySchedule discrete(std::vector<int64_t> difficulties, std::vector<int64_t> steps) {
  return {.type = "fixed_discrete",
          .min = 1,
          .max = 64,
          .difficulties = std::move(difficulties),
          .last_steps = std::move(steps)};
}

TEST(DifficultySchedule, AListHoldsUntilItsSteps) {
  const auto schedule = discrete({16, 8, 64}, {2, 4});
  EXPECT_EQ(first(schedule, 6), (std::vector<int64_t>{16, 16, 8, 8, 64, 64}));
  EXPECT_EQ(schedule.lowest(2), 16);
  EXPECT_EQ(schedule.lowest(9), 8);
  EXPECT_EQ(schedule.highest(4), 16);
  EXPECT_EQ(schedule.highest(5), 64);
}

/// DeepSpeed asks no more once the maximum is reached. Here that is a function of the step, too, so
/// a resumed run does the same.
TEST(DifficultySchedule, AListNeverComesDownFromTheMaximum) {
  EXPECT_EQ(first(discrete({16, 64, 8}, {2, 4}), 6),
            (std::vector<int64_t>{16, 16, 64, 64, 64, 64}));
  EXPECT_EQ(first(discrete({16, 64, 8}, {4, 4}), 6), (std::vector<int64_t>{16, 16, 16, 16, 8, 8}))
      << "no step is between 4 and 4";
  EXPECT_EQ(first(discrete({16, 64, 8}, {4, 0}), 6), (std::vector<int64_t>{16, 16, 16, 16, 8, 8}));
}

TEST(DifficultySchedule, AMinimumThatIsTheMaximumStays) {
  EXPECT_EQ(linear(24, 24, 10, 16).at(3), 24);
}

TEST(RandomLtdConfig, KeepsMoreTokensAsStepsAreDone) {
  const RandomLtdConfig ltd{.min = 10, .max = 30, .require_steps = 8, .tokens_per_step = 4};
  std::vector<int64_t> kept;
  for (int64_t done = 0; done <= 9; ++done) kept.push_back(ltd.kept(done));
  EXPECT_EQ(kept, (std::vector<int64_t>{8, 12, 12, 16, 20, 20, 24, 24, 28, 30}))
      << "below min at first; done / 8 of 20, rounded down to fours";
  EXPECT_EQ(ltd.kept(INT64_MAX), 30);
}

TEST(DataEfficiencyConfig, NamesWhatAStepGoesBy) {
  DataEfficiencyConfig config;
  EXPECT_TRUE(config.difficulties(1).empty());
  config.row_length = {"seqlen_truncate", linear(8, 64, 10, 8)};
  config.random_ltd = RandomLtdConfig{
      .layers = {1}, .min = 16, .max = 32, .require_steps = 4, .tokens_per_step = 4};
  EXPECT_EQ(config.difficulties(3),
            (std::map<std::string, int64_t>{{"random_ltd", 24}, {"seqlen_truncate", 24}}));
  EXPECT_EQ(config.difficulties(1).at("random_ltd"), 16) << "no step is done yet";
}

}  // namespace
}  // namespace dsj::dsconfig
