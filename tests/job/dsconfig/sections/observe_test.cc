// What watches a run, resolved: each key and argument reaches its field; cadences are due when
// Hugging Face's loop would act.
#include <gtest/gtest.h>

#include <random>

#include "tests/job/dsconfig/said.h"

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
  // GCC 12 takes an assignment for one to what is not initialised (its bug 105593).
  args.save_strategy.emplace("epoch");
  args.evaluation_strategy.emplace("steps");
  args.eval_data_path.emplace("eval.json");
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

/// TrainerState.compute_steps: ceil(total x share). Drawn shares, against the definition: the least
/// whole number that is not below the product.
TEST(ObserveTest, BelowOneIsAShareOfTheRun) {
  std::mt19937 random(5);
  for (int draw = 0; draw < 300; ++draw) {
    const int64_t total = std::uniform_int_distribution<int64_t>(1, 5000)(random);
    const double share = std::uniform_real_distribution<>(1e-4, 0.9999)(random);
    TrainingArgs args;
    args.max_steps = total;
    args.save_steps = args.eval_steps = args.logging_steps = args.warmup_steps = share;
    args.evaluation_strategy = "steps";
    args.eval_data_path = "eval.json";
    args.lr_scheduler_type.emplace("cosine");
    const auto r = watched("{}", args);
    ASSERT_TRUE(r.runnable());
    const double product = static_cast<double>(total) * share;
    for (const int64_t steps : {r.config.save.every, r.config.eval.when.every,
                                r.config.logging.every, r.config.scheduler.warmup_steps}) {
      EXPECT_GE(static_cast<double>(steps), product);
      EXPECT_LT(static_cast<double>(steps - 1), product);
    }
  }
}

TEST(ObserveTest, OneAndMoreAreSteps) {
  TrainingArgs args;
  args.max_steps = 1000;
  args.save_steps = 1;
  args.warmup_steps = 2.9;  // int() of it, as in get_warmup_steps
  args.lr_scheduler_type.emplace("linear");
  const auto r = watched("{}", args);
  EXPECT_TRUE(r.runnable());
  EXPECT_EQ(r.config.save.every, 1);
  EXPECT_EQ(r.config.scheduler.warmup_steps, 2);
  args.save_steps = 2.5;
  EXPECT_FALSE(watched("{}", args).ok());
  args.save_steps = 0;  // never between two steps
  EXPECT_TRUE(due(watched("{}", args).config.save, 10, 1000).empty());
  args.save_steps = 5;
  args.logging_steps = 0;
  EXPECT_FALSE(watched("{}", args).ok());
  args.logging_strategy = "no";
  EXPECT_TRUE(watched("{}", args).ok());
  EXPECT_EQ(watched("{}", args).config.logging.kind, Cadence::Kind::Never);
  args.save_total_limit = 0;
  EXPECT_TRUE(watched("{}", args).ok());
}

TEST(ObserveTest, ReportToSwitchesTheMonitorOn) {
  TrainingArgs args;
  args.output_dir = "/out";
  for (const char* none : {"none", ""}) {
    args.report_to = none;
    EXPECT_FALSE(watched("{}", args).config.observe.tensorboard.enabled);
  }
  for (const char* on : {"all", "tensorboard", "wandb,tensorboard"}) {
    args.report_to = on;
    const auto r = watched("{}", args);
    EXPECT_TRUE(r.runnable());
    EXPECT_TRUE(r.config.observe.tensorboard.enabled) << on;
    EXPECT_EQ(r.config.observe.tensorboard.output_path, "/out/runs");
    EXPECT_EQ(r.config.observe.tensorboard.job_name, "run");
  }
  const auto own = watched(R"({"tensorboard": {"enabled": true, "output_path": "tb"}})", args);
  EXPECT_EQ(own.config.observe.tensorboard.output_path, "tb") << "the file says where";
  args.logging_dir = "/logs";
  args.run_name = "third";
  EXPECT_EQ(watched("{}", args).config.observe.tensorboard.output_path, "/logs");
  EXPECT_EQ(watched("{}", args).config.observe.tensorboard.job_name, "third");
  args.report_to = "wandb";
  const auto wandb = watched("{}", args);
  EXPECT_TRUE(wandb.runnable()) << "no reason to refuse a run";
  EXPECT_FALSE(wandb.config.observe.tensorboard.enabled);
  EXPECT_EQ(wandb.findings.size(), 1u) << "and it is said";
  args.report_to = "wandv";
  EXPECT_FALSE(watched("{}", args).ok());
}

TEST(ObserveTest, TrackersSectionsRefuseNoRun) {
  for (const char* keys : {R"({"wandb": {"enabled": true, "project": "p"}})",
                           R"({"comet": {"enabled": true, "project": "p"}})"}) {
    const auto r = watched(keys);
    EXPECT_TRUE(r.runnable()) << keys;
    ASSERT_EQ(r.findings.size(), 1u);
    EXPECT_NE(said(r).find("docs/watching.md"), std::string::npos);
  }
}

TEST(ObserveTest, SplitRowsAreNotTrainedOn) {
  TrainingArgs args;
  args.evaluation_strategy.emplace("epoch");
  args.validation_split_percentage = 10;
  args.num_train_epochs = 1;
  const auto r = watched("{}", args);
  EXPECT_TRUE(r.runnable());
  EXPECT_EQ(r.config.eval.split_rows, 10);
  EXPECT_EQ(r.config.total_steps, 12) << "90 rows in batches of 8";
  args.validation_split_percentage = 0.1;
  EXPECT_FALSE(watched("{}", args).runnable()) << "no row is left to evaluate on";
}

TEST(ObserveTest, RowsAreHeldOutAtRandomToo) {
  TrainingArgs args;
  args.evaluation_strategy.emplace("epoch");
  args.num_train_epochs = 1;
  for (const auto& [size, rows] : {std::pair{0.095, 10}, {0.1, 10}, {3.0, 3}}) {
    args.val_size = size;
    const auto r = watched("{}", args);
    EXPECT_TRUE(r.runnable());
    EXPECT_EQ(r.config.eval.split_rows, rows) << size;
  }
  args.val_size = 100;
  EXPECT_FALSE(watched("{}", args).runnable()) << "no row is left to train on";
  args.val_size = 0.1;
  args.validation_split_percentage = 10;
  EXPECT_FALSE(watched("{}", args).ok());
  args.validation_split_percentage.reset();
  args.eval_data_path = "/e";
  EXPECT_FALSE(watched("{}", args).ok());
}

TEST(ObserveTest, EvaluationNeedsRows) {
  TrainingArgs args;
  args.evaluation_strategy.emplace("epoch");
  EXPECT_FALSE(watched("{}", args).ok());
  args.eval_data_path = "";
  EXPECT_FALSE(watched("{}", args).ok());
  args.eval_data_path = "eval.json";
  EXPECT_TRUE(watched("{}", args).ok());
  args.validation_split_percentage = 5;
  EXPECT_FALSE(watched("{}", args).ok()) << "both";
  args.validation_split_percentage = 0;
  EXPECT_TRUE(watched("{}", args).ok()) << "nothing is held out";
  args.validation_split_percentage.reset();
  args.eval_dataset = "held_out";
  EXPECT_FALSE(watched("{}", args).ok()) << "both";
  args.eval_data_path.reset();
  EXPECT_TRUE(watched("{}", args).ok());
  args.val_size = 5;
  EXPECT_FALSE(watched("{}", args).ok()) << "both";
}

}  // namespace
}  // namespace dsj::dsconfig
