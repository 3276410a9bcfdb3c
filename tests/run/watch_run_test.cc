// Watching a run of the engine: what each key of ds_config and each argument that watches makes
// appear, and that nothing of it moves the training by a bit.
#include <gmock/gmock.h>

#include <algorithm>

#include "test_paths.h"
#include "tests/run/run_support.h"

namespace dsj::run_test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class WatchRun : public RunTest {
 protected:
  void SetUp() override {
    if (!has_engine()) GTEST_SKIP() << "dsj-train is not built (DSJ_ENGINE=OFF)";
    RunTest::SetUp();
    write("data.json", counting_rows(20, 12).dump());
    write("eval.json", counting_rows(7, 12).dump());
  }
  /// Runs `steps` steps of 4 rows on 2 ranks (stage 3) with more keys and overrides; the exit code.
  int train(int steps, const json& keys, const std::vector<std::string>& overrides = {}) {
    json config = {
        {"train_micro_batch_size_per_gpu", 1},
        {"gradient_accumulation_steps", 2},
        {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}},
        {"zero_optimization", {{"stage", 3}, {"stage3_param_persistence_threshold", 64}}}};
    if (!keys.is_null()) config.update(keys);
    write("ds.json", config.dump());
    write_job({{"maxSteps", std::to_string(steps)},
               {"saveSteps", "1000"},
               {"lrSchedulerType", "constant"}});
    std::vector<std::string> arguments = {"job.yaml"};
    for (const auto& change : overrides) {
      arguments.push_back("--set");
      arguments.push_back("spec.training." + change);
    }
    return run(arguments);
  }
  std::vector<json> metrics() const {
    std::vector<json> lines;
    std::ifstream in(out() / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
  }
  /// Of the training lines, or of the evaluations'.
  std::vector<double> values(const char* key) const {
    std::vector<double> found;
    for (const json& line : metrics())
      if (line.contains(key)) found.push_back(line[key]);
    return found;
  }
  std::vector<int64_t> steps_with(const char* key) const {
    std::vector<int64_t> steps;
    for (const json& line : metrics())
      if (line.contains(key)) steps.push_back(line["step"]);
    return steps;
  }
  std::vector<std::string> lines_of(const std::string& path) const {
    std::vector<std::string> lines;
    std::ifstream in(at(path));
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
};

TEST_F(WatchRun, MonitorsWriteEveryStep) {
  const json keys = {
      {"wall_clock_breakdown", true},
      {"tensorboard", {{"enabled", true}, {"output_path", "tb"}, {"job_name", "mine"}}},
      {"csv_monitor", {{"enabled", true}, {"output_path", "csv"}}}};
  ASSERT_EQ(train(3, keys), 0);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(at("tb/mine"))) {
    EXPECT_THAT(entry.path().filename(), testing::StartsWith("events.out.tfevents."));
    const std::string text = read_text(entry.path());
    for (const char* tag : {"Train/Samples/train_loss", "Train/Samples/lr",
                            "Train/Samples/elapsed_time_ms_backward_allreduce"}) {
      EXPECT_THAT(text, HasSubstr(tag));
    }
    ++files;
  }
  EXPECT_EQ(files, 1);
  const std::string csv = "csv/DeepSpeedJobName/Train_Samples_";
  const auto loss = lines_of(csv + "train_loss.csv");
  ASSERT_EQ(loss.size(), 4u);
  EXPECT_EQ(loss[0], "step,train_loss\r");
  const auto expected = values("loss");
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(loss[i + 1], testing::StartsWith(std::to_string(4 * (i + 1)) + ","));
    EXPECT_EQ(std::stod(loss[i + 1].substr(loss[i + 1].find(',') + 1)), expected[i]);
  }
  for (const char* tag : {"lr", "elapsed_time_ms_forward", "elapsed_time_ms_backward",
                          "elapsed_time_ms_backward_inner", "elapsed_time_ms_step"}) {
    EXPECT_EQ(lines_of(csv + tag + ".csv").size(), 4u) << tag;
  }
  // The same directory goes on: no row twice.
  ASSERT_EQ(train(5, keys), 0);
  EXPECT_EQ(lines_of(csv + "train_loss.csv").size(), 6u);
  EXPECT_EQ(lines_of(csv + "train_loss.csv").back().substr(0, 3), "20,");
}

TEST_F(WatchRun, BreakdownsArePrintedEveryStepsPerPrint) {
  ASSERT_EQ(train(4, {{"steps_per_print", 2},
                      {"wall_clock_breakdown", true},
                      {"memory_breakdown", true},
                      {"dump_state", true}}),
            0);
  const std::string text = stdout_text();
  EXPECT_THAT(text, HasSubstr("\nstep=2, skipped=0, lr=0.001, loss="));
  EXPECT_THAT(text, HasSubstr("\nstep=4, skipped=0"));
  EXPECT_THAT(text, Not(HasSubstr("\nstep=3,")));
  EXPECT_THAT(text, ContainsRegex("\ntime \\(ms\\) \\| forward: [0-9.]+ \\| backward: [0-9.]+ \\| "
                                  "backward_inner: [0-9.]+ \\| backward_allreduce: [0-9.]+ \\| "
                                  "step: [0-9.]+\n"));
  EXPECT_THAT(text,
              ContainsRegex("\nmemory \\(MiB, live/peak\\) \\| parameters: [0-9.]+/[0-9.]+ "));
  EXPECT_THAT(text, HasSubstr("\nstate: resolved configuration\n"));
  EXPECT_GT(status()["training"]["peakBytes"]["parameters"], 0);
  fs::remove_all(out());
  ASSERT_EQ(train(4, {}), 0);
  for (const char* part : {"step=", "time (ms)", "memory (MiB", "state:"}) {
    EXPECT_THAT(stdout_text(), Not(HasSubstr(part))) << "nobody asked";
  }
}

TEST_F(WatchRun, CommunicationIsLogged) {
  ASSERT_EQ(train(2, {{"comms_logger", {{"enabled", true}, {"verbose", true}, {"debug", true}}}}),
            0);
  EXPECT_THAT(stdout_text(), HasSubstr("Comm. Op            Message Size"));
  EXPECT_THAT(stdout_text(), HasSubstr("\nall_gather | layer 0\n"));
  EXPECT_THAT(stdout_text(), HasSubstr("\nreduce_scatter | layer 1\n"));
  EXPECT_THAT(read_text(out() / "logs/rank-1.log"), HasSubstr("comm op: reduce_scatter | layer"));
  const auto logged = values("loss");
  fs::remove_all(out());
  ASSERT_EQ(train(2, {{"comms_logger",
                       {{"enabled", true}, {"prof_all", false}, {"prof_ops", {"all_reduce"}}}}}),
            0);
  EXPECT_THAT(stdout_text(), HasSubstr("\nall_reduce\n"));
  EXPECT_THAT(stdout_text(), Not(HasSubstr("all_gather")));
  EXPECT_THAT(read_text(out() / "logs/rank-1.log"), Not(HasSubstr("comm op:")));
  fs::remove_all(out());
  ASSERT_EQ(train(2, {}), 0);
  EXPECT_EQ(values("loss"), logged) << "watching changes no bit";
}

TEST_F(WatchRun, FlopsAreProfiledAtTheirStep) {
  ASSERT_EQ(train(3, {{"flops_profiler", {{"enabled", true}, {"profile_step", 2}}}}), 0);
  EXPECT_THAT(stdout_text(), HasSubstr("\nflops profile of step 2, one micro-batch\n"));
  EXPECT_THAT(stdout_text(), HasSubstr("q_proj"));
  fs::remove_all(out());
  ASSERT_EQ(train(3, {{"flops_profiler",
                       {{"enabled", true}, {"output_file", "flops.txt"}, {"detailed", false}}}}),
            0);
  EXPECT_THAT(stdout_text(), Not(HasSubstr("flops profile")));
  EXPECT_THAT(read_text(at("flops.txt")), HasSubstr("flops profile of step 1,"));
  EXPECT_THAT(read_text(at("flops.txt")), Not(HasSubstr("all modules")));
}

TEST_F(WatchRun, EvaluationMovesNoBitOfTheTraining) {
  ASSERT_EQ(train(6, {}), 0);
  const auto expected = values("loss");
  EXPECT_THAT(values("eval_loss"), IsEmpty());
  fs::remove_all(out());
  ASSERT_EQ(train(6, {},
                  {"evaluationStrategy=steps", "evalSteps=2", "evalDataPath=eval.json",
                   "perDeviceEvalBatchSize=2", "evalOnStart=true"}),
            0);
  EXPECT_EQ(values("loss"), expected) << "bit for bit";
  EXPECT_EQ(steps_with("eval_loss"), (std::vector<int64_t>{0, 2, 4, 6}));
  EXPECT_EQ(values("eval_samples"), (std::vector<double>(4, 7.0)));
  EXPECT_THAT(stdout_text(), ContainsRegex("\nstep 4 eval_loss [0-9.]+ \\(7 rows\\)"));
  EXPECT_EQ(status()["training"]["evalStep"], 6);
}

/// LLaMA-Factory's eval_dataset: entries of the training rows' dataset_info.json.
TEST_F(WatchRun, EvaluatesOnDataSetsByName) {
  ASSERT_EQ(train(4, {}, {"evaluationStrategy=steps", "evalSteps=2", "evalDataPath=eval.json"}), 0);
  const auto expected = values("eval_loss");
  ASSERT_EQ(expected.size(), 2u);
  fs::remove_all(out());
  write("dataset_info.json",
        R"({"mine": {"file_name": "data.json"}, "held": {"file_name": "eval.json"},
      "none": {"file_name": "none.json"}})");
  const auto by_name = [&](const std::string& names) {
    return std::vector<std::string>{"evaluationStrategy=steps", "evalSteps=2", "dataPath=.",
                                    "dataset=mine", "evalDataset=" + names};
  };
  ASSERT_EQ(train(4, {}, by_name("held")), 0) << stderr_text();
  EXPECT_EQ(values("eval_loss"), expected) << "bit for bit";
  fs::remove_all(out());
  ASSERT_EQ(train(4, {}, by_name("\"held,mine\"")), 0) << stderr_text();
  EXPECT_EQ(values("eval_samples"), (std::vector<double>(2, 27.0)));
  fs::remove_all(out());
  EXPECT_EQ(train(4, {}, by_name("none")), 1);
  EXPECT_THAT(stderr_text(), HasSubstr("none.json"));
  EXPECT_EQ(train(4, {}, by_name("other")), 1);
  EXPECT_THAT(stderr_text(), HasSubstr("other"));
}

TEST_F(WatchRun, SplitAndEpochs) {
  // 18 of 20 rows train: 4.5, so 5 steps an epoch; the third is cut short by maxSteps.
  ASSERT_EQ(train(12, {},
                  {"evaluationStrategy=epoch", "validationSplitPercentage=10", "saveStrategy=epoch",
                   "saveTotalLimit=2", "loggingSteps=4", "loggingFirstStep=true"}),
            0);
  EXPECT_EQ(steps_with("eval_loss"), (std::vector<int64_t>{5, 10, 12}));
  EXPECT_EQ(values("eval_samples"), (std::vector<double>(3, 2.0)));
  for (const char* saved : {"saved step 5 ", "saved step 10 ", "saved step 12 "})
    EXPECT_THAT(stdout_text(), HasSubstr(saved));
  EXPECT_THAT(stdout_text(), Not(HasSubstr("saved step 6 ")));
  int checkpoints = 0;
  for (const auto& entry : fs::directory_iterator(out() / "checkpoints"))
    checkpoints += entry.is_directory();
  EXPECT_EQ(checkpoints, 2) << "saveTotalLimit";
  const auto losses = values("loss");
  for (const char* line : {"\nstep 1/12 loss ", "\nstep 4/12 loss ", "\nstep 12/12 loss "})
    EXPECT_THAT(stdout_text(), HasSubstr(line));
  EXPECT_THAT(stdout_text(), Not(HasSubstr("\nstep 2/12")));
  char mean[64];
  std::snprintf(mean, sizeof mean, "\nstep 8/12 loss %.4f",
                (losses[4] + losses[5] + losses[6] + losses[7]) / 4);
  EXPECT_THAT(stdout_text(), HasSubstr(mean)) << "the mean since the last line";
}

/// The largest loss counts as the best, so the best is the first evaluation, and the run ends early.
TEST_F(WatchRun, TheBestCheckpointIsExportedAndTheRunEndsEarly) {
  const std::vector<std::string> best = {"evaluationStrategy=steps",
                                         "evalSteps=2",
                                         "saveSteps=2",
                                         "saveTotalLimit=1",
                                         "evalDataPath=eval.json",
                                         "loadBestModelAtEnd=true",
                                         "greaterIsBetter=true",
                                         "earlyStoppingPatience=2",
                                         "lrSchedulerType=constant"};
  ASSERT_EQ(train(20, {}, best), 0) << stderr_text();
  EXPECT_EQ(steps_with("eval_loss"), (std::vector<int64_t>{2, 4, 6}));
  const auto losses = values("eval_loss");
  ASSERT_GT(losses[0], losses[1]) << "the first evaluation is the best";
  EXPECT_THAT(stdout_text(), HasSubstr("early stopping"));
  EXPECT_TRUE(fs::exists(out() / "checkpoints" / "step-2")) << "the best stays";
  EXPECT_TRUE(fs::exists(out() / "checkpoints" / "step-6")) << "and the newest";
  EXPECT_FALSE(fs::exists(out() / "checkpoints" / "step-4"));
  const std::string exported = read_text(out() / "model" / "model.safetensors");
  ASSERT_EQ(train(20, {}, best), 0) << "it goes on from where it stopped: there is no step";
  EXPECT_EQ(steps_with("eval_loss"), (std::vector<int64_t>{2, 4, 6}));
  EXPECT_TRUE(read_text(out() / "model" / "model.safetensors") == exported);
  fs::remove_all(out());
  ASSERT_EQ(train(2, {}, {"lrSchedulerType=constant"}), 0);
  EXPECT_TRUE(read_text(out() / "model" / "model.safetensors") == exported)
      << "the model of step 2";
}

/// A run that ends at a step without a checkpoint still writes the one that it began at the step before.
TEST_F(WatchRun, ABestCheckpointJustBeforeTheEndIsWritten) {
  for (const int64_t steps : {2, 3}) {
    fs::remove_all(out());
    ASSERT_EQ(train(steps, {},
                    {"evaluationStrategy=steps", "evalSteps=1", "evalDataPath=eval.json",
                     "saveStrategy=best", "metricForBestModel=loss", "greaterIsBetter=true",
                     "loadBestModelAtEnd=true", "lrSchedulerType=constant"}),
              0)
        << stderr_text();
    const auto losses = values("eval_loss");
    ASSERT_GT(losses[0], *std::ranges::max_element(losses.begin() + 1, losses.end()));
    EXPECT_THAT(stdout_text(), HasSubstr("saved step 1 ")) << steps;
    EXPECT_TRUE(fs::exists(out() / "checkpoints" / "step-1")) << steps;
  }
}

/// Trainer's save_only_model: models that transformers reads in place of checkpoints. Nothing of it moves
/// the training by a bit, and a stop still leaves a checkpoint to continue from.
TEST_F(WatchRun, SavesModelsAlone) {
  const auto weights = [&](const fs::path& directory, const char* file = "model.safetensors") {
    return read_text(directory / file);
  };
  for (const int stage : {0, 2, 3}) {
    for (const bool lora : {false, true}) {
      const char* file = lora ? "adapter_model.safetensors" : "model.safetensors";
      std::vector<std::string> overrides = {"saveSteps=2"};
      if (lora) overrides.emplace_back("lora.r=4");
      const json keys = {{"zero_optimization", {{"stage", stage}}}};
      fs::remove_all(out());
      ASSERT_EQ(train(4, keys, overrides), 0) << stderr_text();
      const std::string four = weights(out() / "model", file);
      fs::remove_all(out());
      ASSERT_EQ(train(5, keys, overrides), 0) << stderr_text();
      const std::string five = weights(out() / "model", file);
      fs::remove_all(out());
      overrides.insert(overrides.end(), {"saveOnlyModel=true", "saveTotalLimit=1"});
      ASSERT_EQ(train(5, keys, overrides), 0) << stderr_text();
      EXPECT_TRUE(weights(out() / "model", file) == five) << stage;
      EXPECT_TRUE(weights(out() / "models" / "checkpoint-4", file) == four) << stage;
      EXPECT_FALSE(fs::exists(out() / "models" / "checkpoint-2")) << "the limit is 1";
      EXPECT_FALSE(fs::exists(out() / "models" / "checkpoint-5")) << "model/ is that";
      EXPECT_FALSE(fs::exists(out() / "checkpoints" / "step-4"));
    }
  }
  fs::remove_all(out());
  write_job({{"maxSteps", "1000000"},
             {"saveSteps", "1"},
             {"saveTotalLimit", "1"},
             {"saveOnlyModel", "true"}});
  start({"job.yaml"});
  ASSERT_TRUE(soon([&] { return steps_done() > 2; }));
  EXPECT_FALSE(fs::exists(out() / "checkpoints" / "step-1"));
  kill(pid_, SIGINT);
  EXPECT_EQ(finish(), 130);
  EXPECT_TRUE(fs::exists(out() / "checkpoints" / ("step-" + std::to_string(steps_done()))));
  EXPECT_NE(train(4, {},
                  {"saveOnlyModel=true", "loadBestModelAtEnd=true", "evalDataPath=eval.json",
                   "evaluationStrategy=steps", "evalSteps=2", "saveSteps=2"}),
            0);
  EXPECT_THAT(stderr_text(), HasSubstr("keeps no checkpoint to load the best one from"));
}

TEST_F(WatchRun, ReportToTensorboardWritesItsFile) {
  ASSERT_EQ(train(2, {}, {"reportTo=tensorboard"}), 0);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(out() / "runs" / "run"))
    files += entry.path().filename().string().starts_with("events.out.tfevents");
  EXPECT_EQ(files, 1);
}

TEST_F(WatchRun, StopBeforeTheFirstStepLeavesAtOnce) {
  write("ds.json", R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}})");
  write_job({{"maxSteps", "1000000"}});
  // Rank 1 stops itself before it begins, so rank 0 cannot get beyond the rendezvous.
  write("train",
        "#!/bin/sh\n[ \"$RANK\" = 1 ] && kill -STOP $$\nexec '" DSJ_BIN_DIR "/dsj-train'\n");
  fs::permissions(at("train"), fs::perms::owner_all);
  variables_["DSJ_TRAIN_PROGRAM"] = at("train");
  start({"job.yaml"});
  const auto told = [&](const std::string& line) {
    const pid_t pid = rank_process(1);
    return pid != 0 && read_text("/proc/" + std::to_string(pid) + "/status").contains(line);
  };
  ASSERT_TRUE(soon([&] { return told("State:\tT"); }));
  ASSERT_TRUE(soon([&] { return rank_process(0) != 0; }));
  kill(pid_, SIGINT);
  // It goes on only when it has been asked to stop: else the ranks may do a step before.
  ASSERT_TRUE(soon([&] { return told("ShdPnd:\t0000000000004000"); }));
  kill_rank(1, SIGCONT);
  EXPECT_EQ(finish(), 130);
  EXPECT_EQ(steps_done(), 0);
  EXPECT_THAT(read_text(at("stderr")), HasSubstr("before the attempt's first step"));
  EXPECT_THAT(processes(), IsEmpty());
}

}  // namespace
}  // namespace dsj::run_test
