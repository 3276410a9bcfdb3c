#include "engine/optim/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "job/dsconfig/resolve.h"
#include "test_paths.h"
#include "tests/support/shared_files.h"

namespace dsj::optim {
namespace {

nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

/// A ds_config's scheduler as resolve() reads it.
dsconfig::Resolution resolved(const std::string& type, const nlohmann::json& params, double lr,
                              const std::string& optimizer = "AdamW") {
  return dsconfig::resolve({{"train_micro_batch_size_per_gpu", 1},
                            {"optimizer", {{"type", optimizer}, {"params", {{"lr", lr}}}}},
                            {"scheduler", {{"type", type}, {"params", params}}}},
                           {}, {});
}

TEST(LrSchedule, EveryValueOfDeepSpeedsOwnClasses) {
  const auto path = testing_support::golden_directory() / "lr_schedules.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  int compared = 0, exact = 0, momenta = 0, refused = 0;
  const auto golden = read_json(path);
  for (const auto& row : golden["schedules"]) {
    SCOPED_TRACE(row["type"].get<std::string>() + " " + row["params"].dump());
    const double optimizer_lr = row["optimizer_lr"];
    const auto resolution = resolved(row["type"], row["params"], optimizer_lr);
    if (row.contains("error")) {
      // Hugging Face writes a warm-up of 0 steps, and JSON does not tell 10.0 from 10.
      const bool ours = row["params"].contains("warmup_num_steps");
      EXPECT_EQ(resolution.runnable(), ours);
      refused += !ours;
      continue;
    }
    ASSERT_TRUE(resolution.runnable()) << resolution.findings.front().message;
    for (size_t step = 0; step < row["lr"].size(); ++step) {
      const double expected = row["lr"][step];
      const auto rates = rates_at(resolution.config.scheduler, optimizer_lr, int64_t(step));
      EXPECT_NEAR(rates.lr, expected, 1e-12 * std::abs(expected)) << "step " << step;
      ++compared;
      exact += rates.lr == expected;
      if (!row.contains("mom") || row["mom"].is_null()) continue;
      if (!rates.momentum) {
        EXPECT_EQ(row["params"].value("cycle_momentum", true), false);
        continue;
      }
      EXPECT_NEAR(*rates.momentum, row["mom"][step].get<double>(), 1e-12) << "step " << step;
      ++momenta;
    }
  }
  EXPECT_EQ(compared % 1001, 0);
  EXPECT_GE(compared, 13 * 1001);
  EXPECT_GT(momenta, 2000);
  EXPECT_EQ(refused, 3);
  std::printf("%d rates compared, %d equal to the last bit; %d momenta; %d refused as DeepSpeed\n",
              compared, exact, momenta, refused);
}

TEST(LrSchedule, LrColumnOfTheGoldenRuns) {
  const auto folder = testing_support::golden_directory() / "deepspeed_0.19.8";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  for (const char* name : {"warmup_log", "warmup_linear", "warmupdecay_linear", "warmupcosine",
                           "lrrangetest", "onecycle"}) {
    const auto run = read_json(folder / (std::string("qwen2_fp32_z1_w2_sched_") + name + ".json"));
    const auto resolution = dsconfig::resolve(run["ds_config"], {}, {.world_size = 2});
    ASSERT_TRUE(resolution.runnable()) << name;
    const auto& config = resolution.config;
    ASSERT_EQ(run["steps"].size(), 20u);
    for (const auto& step : run["steps"]) {
      const int64_t done = step["step"];
      const double expected = step["lr"], expected_next = step["lr_next"];
      EXPECT_NEAR(learning_rate(config.scheduler, config.optimizer.lr, done), expected,
                  1e-12 * expected)
          << name << done;
      EXPECT_NEAR(learning_rate(config.scheduler, config.optimizer.lr, done + 1), expected_next,
                  1e-12 * expected_next);
    }
  }
}

TEST(LrSchedule, EveryValueOfTheOracle) {
  const auto oracle = read_json(DSJ_SOURCE_DIR "/tests/fixtures/schedules.oracle.json");
  const double lr = oracle["lr"];
  const auto compare = [&](const auto& row, const dsconfig::Resolution& resolution) {
    SCOPED_TRACE(row.dump().substr(0, 160));
    ASSERT_TRUE(resolution.runnable()) << resolution.findings.front().message;
    ASSERT_EQ(row["type"], resolution.config.scheduler.type);
    for (size_t step = 0; step < row["lr"].size(); ++step) {
      const auto rates = rates_at(resolution.config.scheduler, lr, int64_t(step));
      EXPECT_NEAR(rates.lr, row["lr"][step].template get<double>(), 1e-12) << "step " << step;
      EXPECT_EQ(rates.momentum.has_value(), row.contains("momentum"));
      if (rates.momentum) {
        EXPECT_NEAR(*rates.momentum, row["momentum"][step], 1e-12) << step;
      }
    }
  };
  for (const auto& row : oracle["torch"])
    compare(row, resolved(row["type"], row["params"], lr, row["optimizer"]));
  for (const auto& row : oracle["hugging_face"]) {
    TrainingArgs args;
    args.max_steps = oracle["steps"].get<int64_t>() - 4;
    args.warmup_steps = oracle["warmup_steps"];
    args.learning_rate = lr;
    args.lr_scheduler_type = row["type"];
    args.lr_scheduler_kwargs = row["kwargs"];
    compare(row, dsconfig::resolve({{"train_micro_batch_size_per_gpu", 1}}, args, {}));
  }
}

/// Neither ds_config nor the arguments name a schedule: Trainer's default, "linear", over drawn
/// lengths and warm-ups (transformers' get_linear_schedule_with_warmup).
TEST(LrSchedule, AJobThatNamesNoneDecaysLinearlyAsTrainer) {
  const auto resolved_job = [](const TrainingArgs& args) {
    const auto resolution = dsconfig::resolve({{"train_micro_batch_size_per_gpu", 1}}, args, {});
    EXPECT_TRUE(resolution.runnable());
    return resolution.config;
  };
  TrainingArgs guide;
  guide.max_steps = 10;
  guide.learning_rate = 1e-3;
  const auto ten = resolved_job(guide);
  for (int64_t step = 0; step < 10; ++step)
    EXPECT_NEAR(rates_at(ten, step).lr, 1e-3 * static_cast<double>(10 - step) / 10, 1e-18);
  guide.warmup_ratio = 0.15;  // ceil(1.5): two steps
  const auto warm = resolved_job(guide);
  const double expected[] = {0, 0.0005, 0.001, 0.000875, 0.00075};
  for (int64_t step = 0; step < 5; ++step)
    EXPECT_NEAR(rates_at(warm, step).lr, expected[step], 1e-18) << step;

  std::mt19937_64 draws(30);
  for (int round = 0; round < 500; ++round) {
    TrainingArgs args;
    const int64_t steps = 1 + static_cast<int64_t>(draws() % 400);
    int64_t warmup = static_cast<int64_t>(draws() % static_cast<uint64_t>(steps + 1));
    args.max_steps = steps;
    args.learning_rate = 1e-6 * static_cast<double>(1 + draws() % 1000);
    if (draws() % 2 == 0) {
      args.warmup_steps = warmup;
    } else {
      args.warmup_ratio = static_cast<double>(draws() % 101) / 100;
      warmup = static_cast<int64_t>(std::ceil(static_cast<double>(steps) * *args.warmup_ratio));
    }
    const auto config = resolved_job(args);
    for (int64_t step = 0; step < steps; ++step) {
      const double factor =
          step < warmup
              ? static_cast<double>(step) / static_cast<double>(std::max<int64_t>(1, warmup))
              : static_cast<double>(steps - step) /
                    static_cast<double>(std::max<int64_t>(1, steps - warmup));
      ASSERT_NEAR(rates_at(config, step).lr, *args.learning_rate * factor, 1e-15)
          << "step " << step << " of " << steps << ", " << warmup << " warm up";
    }
  }
}

TEST(LrSchedule, ThePreviousRateIsTheStepBefores) {
  const dsconfig::SchedulerConfig linear{.type = "linear", .warmup_steps = 4, .total_steps = 20};
  EXPECT_EQ(rates_at(linear, 2.0, 3).previous_lr, 1.0);
  EXPECT_EQ(rates_at(linear, 2.0, 0).previous_lr, 0.0);
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
  EXPECT_DEATH(learning_rate({.type = "LambdaLR"}, 1, 0), "LambdaLR");
}

}  // namespace
}  // namespace dsj::optim
