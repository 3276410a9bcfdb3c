// What watches a run, resolved: each key and argument reaches its field; cadences are due when
// Hugging Face's loop would act.
#include <gtest/gtest.h>

#include "job/dsconfig/resolve.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;

Resolution watched(const char* keys, TrainingArgs args = {}, std::optional<int64_t> rows = 100) {
  json config = json::parse(keys);
  config["train_batch_size"] = 8;
  return resolve(config, args, {.world_size = 2, .dataset_rows = rows});
}

std::vector<int64_t> due(const Cadence& cadence, int64_t per_epoch, int64_t total) {
  std::vector<int64_t> steps;
  for (int64_t step = 1; step <= total; ++step)
    if (cadence.due(step, per_epoch, total)) steps.push_back(step);
  return steps;
}

TEST(ObserveTest, MonitorsAndBreakdowns) {
  const auto off = watched("{}").config.observe;
  EXPECT_FALSE(off.tensorboard.enabled || off.csv.enabled || off.comms.enabled ||
               off.flops.enabled || off.wall_clock_breakdown || off.memory_breakdown ||
               off.dump_state);
  const auto r = watched(R"({"wall_clock_breakdown": true, "memory_breakdown": true,
    "dump_state": true,
    "tensorboard": {"enabled": true, "output_path": "tb", "job_name": "a"},
    "csv_monitor": {"enabled": true},
    "comms_logger": {"enabled": true, "prof_all": false, "prof_ops": ["all_reduce"],
                     "verbose": true, "debug": true}})");
  EXPECT_TRUE(r.runnable());
  const auto& on = r.config.observe;
  EXPECT_TRUE(on.wall_clock_breakdown && on.memory_breakdown && on.dump_state);
  EXPECT_TRUE(on.tensorboard.enabled);
  EXPECT_EQ(on.tensorboard.output_path, "tb");
  EXPECT_EQ(on.tensorboard.job_name, "a");
  EXPECT_TRUE(on.csv.enabled);
  EXPECT_EQ(on.csv.output_path, "");
  EXPECT_EQ(on.csv.job_name, "DeepSpeedJobName");
  EXPECT_TRUE(on.comms.enabled && on.comms.verbose && on.comms.debug);
  EXPECT_FALSE(on.comms.prof_all);
  EXPECT_EQ(on.comms.prof_ops, std::vector<std::string>{"all_reduce"});
}

TEST(ObserveTest, FlopsProfilerForcesTheBreakdown) {
  const auto r = watched(R"({"flops_profiler": {"enabled": true, "recompute_fwd_factor": 1.0,
    "profile_step": 5, "module_depth": 1, "top_modules": 3, "detailed": false,
    "output_file": "f.txt"}})");
  EXPECT_TRUE(r.runnable());
  const auto& observe = r.config.observe;
  EXPECT_TRUE(observe.wall_clock_breakdown);
  EXPECT_TRUE(observe.flops.enabled);
  EXPECT_EQ(observe.flops.recompute_fwd_factor, 1.0);
  EXPECT_EQ(observe.flops.profile_step, 5);
  EXPECT_EQ(observe.flops.module_depth, 1);
  EXPECT_EQ(observe.flops.top_modules, 3);
  EXPECT_FALSE(observe.flops.detailed);
  EXPECT_EQ(observe.flops.output_file, "f.txt");
}

TEST(ObserveTest, CadencesAreDueLikeHuggingFaces) {
  EXPECT_EQ(due({Cadence::Kind::Steps, 4}, 5, 13), (std::vector<int64_t>{4, 8, 12}));
  EXPECT_EQ(due({Cadence::Kind::Epoch}, 5, 13), (std::vector<int64_t>{5, 10, 13}))
      << "the last epoch is cut short, and ends";
  EXPECT_EQ(due({Cadence::Kind::Epoch}, 5, 10), (std::vector<int64_t>{5, 10}));
  EXPECT_EQ(due({}, 5, 13), std::vector<int64_t>{});
}

TEST(ObserveTest, StrategiesBecomeCadences) {
  TrainingArgs args;
  args.save_strategy = "epoch";
  args.evaluation_strategy = "steps";
  args.eval_data_path = "eval.json";
  args.logging_steps = 7;
  args.per_device_eval_batch_size = 3;
  args.eval_on_start = true;
  args.logging_first_step = true;
  auto config = watched("{}", args).config;
  EXPECT_EQ(config.save.kind, Cadence::Kind::Epoch);
  EXPECT_EQ(config.steps_per_epoch, 13) << "100 rows in batches of 8";
  EXPECT_EQ(config.logging.every, 7);
  EXPECT_TRUE(config.logging_first_step);
  EXPECT_EQ(config.eval.when.kind, Cadence::Kind::Steps);
  EXPECT_EQ(config.eval.when.every, 7) << "logging_steps";
  EXPECT_EQ(config.eval.micro_batch_size, 3);
  EXPECT_TRUE(config.eval.on_start);
  args.eval_steps = 2;
  EXPECT_EQ(watched("{}", args).config.eval.when.every, 2);
}

TEST(ObserveTest, SplitRowsAreNotTrainedOn) {
  TrainingArgs args;
  args.evaluation_strategy = "epoch";
  args.validation_split_percentage = 10;
  args.num_train_epochs = 1;
  const auto r = watched("{}", args);
  EXPECT_TRUE(r.runnable());
  EXPECT_EQ(r.config.eval.split_rows, 10);
  EXPECT_EQ(r.config.total_steps, 12) << "90 rows in batches of 8";
  args.validation_split_percentage = 0.1;
  EXPECT_FALSE(watched("{}", args).runnable()) << "no row is left to evaluate on";
}

TEST(ObserveTest, EvaluationNeedsRows) {
  TrainingArgs args;
  args.evaluation_strategy = "epoch";
  EXPECT_FALSE(watched("{}", args).ok());
  args.eval_data_path = "";
  EXPECT_FALSE(watched("{}", args).ok());
  args.eval_data_path = "eval.json";
  EXPECT_TRUE(watched("{}", args).ok());
  args.validation_split_percentage = 5;
  EXPECT_FALSE(watched("{}", args).ok()) << "both";
}

}  // namespace
}  // namespace dsj::dsconfig
