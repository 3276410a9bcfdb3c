#include "engine/optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace dsj::optim {
namespace {

std::filesystem::path golden_dir() {
  const char* shared = std::getenv("DSJ_SHARED_DIR");
  return std::filesystem::path(shared ? shared : DSJ_SOURCE_DIR "/../shared") / "golden";
}

nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

/// What the resolver does with ds_config's scheduler section, for the kinds that are built.
dsconfig::SchedulerConfig from_params(const std::string& type, const nlohmann::json& params,
                                      double optimizer_lr) {
  dsconfig::SchedulerConfig config{.type = type};
  config.min_lr = params.value("warmup_min_lr", 0.0);
  config.max_lr = params.value("warmup_max_lr", optimizer_lr);
  config.warmup_steps = params.value("warmup_num_steps", int64_t{1000});
  config.total_steps = params.value("total_num_steps", int64_t{0});
  config.log_warmup = params.value("warmup_type", std::string("log")) != "linear";
  return config;
}

TEST(LrSchedule, EveryValueOfDeepSpeedsOwnClasses) {
  const auto path = golden_dir() / "lr_schedules.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  int compared = 0, exact = 0;
  std::string not_built;
  const auto golden = read_json(path);
  for (const auto& row : golden["schedules"]) {
    const std::string type = row["type"];
    if (row.contains("error")) continue;
    if (type != "WarmupLR" && type != "WarmupDecayLR") {
      not_built += " " + type;
      continue;
    }
    const double optimizer_lr = row["optimizer_lr"];
    const auto config = from_params(type, row["params"], optimizer_lr);
    for (size_t step = 0; step < row["lr"].size(); ++step) {
      const double expected = row["lr"][step];
      const double found = learning_rate(config, optimizer_lr, int64_t(step));
      EXPECT_NEAR(found, expected, 1e-12 * std::abs(expected)) << row["params"] << " step " << step;
      ++compared;
      exact += found == expected;
    }
  }
  EXPECT_EQ(compared, 6 * 1001);
  std::printf("%d values compared, %d equal to the last bit; not built:%s\n", compared, exact,
              not_built.c_str());
}

TEST(LrSchedule, LrColumnOfTheGoldenRuns) {
  const auto folder = golden_dir() / "deepspeed_0.19.8";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  for (const char* name : {"warmup_log", "warmup_linear", "warmupdecay_linear"}) {
    const auto run = read_json(folder / (std::string("qwen2_fp32_z1_w2_sched_") + name + ".json"));
    const auto& scheduler = run["ds_config"]["scheduler"];
    const double lr = run["ds_config"]["optimizer"]["params"]["lr"];
    const auto config = from_params(scheduler["type"], scheduler["params"], lr);
    ASSERT_EQ(run["steps"].size(), 20u);
    for (const auto& step : run["steps"]) {
      const int64_t done = step["step"];
      const double expected = step["lr"], expected_next = step["lr_next"];
      EXPECT_NEAR(learning_rate(config, lr, done), expected, 1e-12 * expected) << name << done;
      EXPECT_NEAR(learning_rate(config, lr, done + 1), expected_next, 1e-12 * expected_next);
    }
  }
}

TEST(LrSchedule, WarmupOfZeroStepsIsAWarmupOfTwo) {
  const dsconfig::SchedulerConfig config{.type = "WarmupLR", .max_lr = 1e-3, .warmup_steps = 0};
  EXPECT_EQ(learning_rate(config, 1, 0), 0);
  EXPECT_EQ(learning_rate(config, 1, 1), 0);
  EXPECT_EQ(learning_rate(config, 1, 2), 1e-3);
}

TEST(LrSchedule, WarmupTypesDiffer) {
  dsconfig::SchedulerConfig config{
      .type = "WarmupLR", .min_lr = 1e-4, .max_lr = 1e-3, .warmup_steps = 100};
  const double logarithmic = learning_rate(config, 1, 11);  // i = 10: ln(11) / ln(100) of the way
  EXPECT_NEAR(logarithmic, 1e-4 + 9e-4 * std::log(11.0) / std::log(100.0), 1e-12);
  config.log_warmup = false;
  EXPECT_NEAR(learning_rate(config, 1, 11), 1e-4 + 9e-4 * 0.1, 1e-12);
  EXPECT_NEAR(learning_rate(config, 1, 0), 1e-4, 1e-15) << "the first step has the minimum";
}

TEST(LrSchedule, DecayEndsAtMinAndStaysThere) {
  const dsconfig::SchedulerConfig config{.type = "WarmupDecayLR",
                                         .min_lr = 1e-5,
                                         .max_lr = 1e-3,
                                         .warmup_steps = 10,
                                         .total_steps = 50};
  EXPECT_EQ(learning_rate(config, 1, 11), 1e-3);
  EXPECT_EQ(learning_rate(config, 1, 51), 1e-5);
  EXPECT_EQ(learning_rate(config, 1, 1000), 1e-5);
}

TEST(LrSchedule, HuggingFaceSchedulesWarmUpFromZeroAndEndAtZero) {
  for (const char* type : {"constant_with_warmup", "linear", "cosine"}) {
    const dsconfig::SchedulerConfig config{.type = type, .warmup_steps = 4, .total_steps = 20};
    EXPECT_EQ(learning_rate(config, 2.0, 0), 0.0) << type;
    EXPECT_EQ(learning_rate(config, 2.0, 1), 0.5) << type;
    EXPECT_EQ(learning_rate(config, 2.0, 4), 2.0) << type;
  }
  const dsconfig::SchedulerConfig linear{.type = "linear", .warmup_steps = 4, .total_steps = 20};
  EXPECT_EQ(learning_rate(linear, 2.0, 12), 1.0);
  EXPECT_EQ(learning_rate(linear, 2.0, 20), 0.0);
  EXPECT_EQ(learning_rate(linear, 2.0, 21), 0.0);
  const dsconfig::SchedulerConfig cosine{.type = "cosine", .warmup_steps = 4, .total_steps = 20};
  EXPECT_DOUBLE_EQ(learning_rate(cosine, 2.0, 12), 1.0);
  EXPECT_NEAR(learning_rate(cosine, 2.0, 8), 1.0 + std::sqrt(0.5), 1e-15);
  EXPECT_EQ(learning_rate(cosine, 2.0, 20), 0.0);
  const dsconfig::SchedulerConfig flat{
      .type = "constant_with_warmup", .warmup_steps = 4, .total_steps = 20};
  EXPECT_EQ(learning_rate(flat, 2.0, 1000), 2.0);
}

TEST(LrSchedule, ConstantIsTheOptimizersOwn) {
  EXPECT_EQ(learning_rate({.type = "constant", .max_lr = 7}, 3e-4, 0), 3e-4);
  EXPECT_EQ(learning_rate({.type = "constant", .max_lr = 7}, 3e-4, 99), 3e-4);
}

TEST(LrScheduleDeathTest, UnknownTypeStopsTheProcess) {
  EXPECT_DEATH(learning_rate({.type = "OneCycle"}, 1, 0), "OneCycle");
}

}  // namespace
}  // namespace dsj::optim
