// Whole runs that go wrong, or lose a part of their rows: they say so.
#include <gmock/gmock.h>

#include <csignal>
#include <limits>

#include "tests/run/run_support.h"

namespace dsj::run_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class NotFiniteRun : public RunTest {
 protected:
  void SetUp() override {
    if (!has_engine()) GTEST_SKIP() << "dsj-train is not built (DSJ_ENGINE=OFF)";
    RunTest::SetUp();
    write("data.json", counting_rows(16, 12).dump());
  }
  void config(int stage, const std::string& optimizer = "AdamW") {
    write("ds.json", R"({"train_micro_batch_size_per_gpu": "auto", "optimizer": {"type": ")" +
                         optimizer +
                         R"(", "params": {"lr": "auto"}}, "zero_optimization": {"stage": )" +
                         std::to_string(stage) + "}}");
  }
  /// The last weight of the file is the final norm's: every logit depends on it.
  void spoil_model() {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::fstream file(at("model") / "model.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-static_cast<std::streamoff>(sizeof nan), std::ios::end);
    file.write(reinterpret_cast<const char*>(&nan), sizeof nan);
  }
  std::vector<json> metrics() const {
    std::vector<json> lines;
    std::ifstream in(out() / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
  }
  std::vector<std::string> checkpoints() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(out() / "checkpoints"))
      if (entry.is_directory()) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }
};

TEST_F(NotFiniteRun, AModelThatIsNotFiniteIsSaidAndNotExported) {
  config(0);
  spoil_model();
  write_job({{"maxSteps", "3"}, {"saveSteps", "1"}});
  EXPECT_EQ(run({"job.yaml"}), 7);
  EXPECT_EQ(read_text(out() / "checkpoints/attempt"), "1\n") << "no other attempt helps";
  EXPECT_THAT(stdout_text(), HasSubstr("step 3/3 loss nan"));
  EXPECT_THAT(stderr_text(),
              HasSubstr("before the first step \"model.norm.weight\" has values that"));
  EXPECT_THAT(stderr_text(), HasSubstr("step 1 is not saved"));
  EXPECT_THAT(stderr_text(), HasSubstr("failed: NotFinite: rank"));
  ASSERT_EQ(metrics().size(), 3u);
  for (const json& line : metrics()) EXPECT_EQ(line["loss"], "NaN");
  EXPECT_EQ(status()["phase"], "Failed");
  EXPECT_EQ(status()["training"]["loss"], "NaN");
  EXPECT_EQ(status()["lastFailure"]["reason"], "NotFinite");
  EXPECT_EQ(status()["lastFailure"]["exitCode"], 7);
  EXPECT_TRUE(checkpoints().empty());
  EXPECT_FALSE(fs::exists(out() / "model"));
  ASSERT_EQ(run({"out", "--ascii"}, "plot"), 0);
  EXPECT_THAT(stdout_text(), HasSubstr("loss  not finite in 3 steps, the first 1"));

  fs::remove_all(out());
  write_job({{"maxSteps", "1"}, {"exportNotFinite", "true"}});
  EXPECT_EQ(run({"job.yaml"}), 0);
  EXPECT_TRUE(fs::exists(out() / "model/model.safetensors"));
  EXPECT_THAT(stderr_text(), HasSubstr("the exported model is not sound"));
}

TEST_F(NotFiniteRun, SoManySkippedStepsInARowEndTheRun) {
  config(2);
  spoil_model();
  write_job({{"maxSteps", "40"}, {"maxSkippedSteps", "4"}});
  EXPECT_EQ(run({"job.yaml"}), 7);
  EXPECT_EQ(metric_steps(), one_to(4));
  for (const json& line : metrics()) {
    EXPECT_EQ(line["skipped"], true);
    EXPECT_NE(line["bad_gradient"], "");
  }
  EXPECT_THAT(stdout_text(), HasSubstr("skipped: the gradient of "));
  EXPECT_THAT(stderr_text(), HasSubstr("warning: step 2 was skipped: the gradient of "));
  EXPECT_THAT(stderr_text(), HasSubstr("in steps 1 to 4"));
  EXPECT_EQ(status()["training"]["skippedSteps"], 4);
  EXPECT_FALSE(fs::exists(out() / "model"));
}

/// A rate that throws the weights to infinity: what was saved before it stays, whatever the limit.
TEST_F(NotFiniteRun, TheLastSoundCheckpointStays) {
  config(0, "SGD");
  write_job(
      {{"maxSteps", "3"}, {"saveSteps", "1"}, {"saveTotalLimit", "1"}, {"learningRate", "1e-3"}});
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_THAT(checkpoints(), ElementsAre("step-3"));
  const auto before = fs::last_write_time(out() / "model/model.safetensors");
  write_job({{"maxSteps", "8"},
             {"saveSteps", "1"},
             {"saveTotalLimit", "1"},
             {"learningRate", "1e38"},
             {"maxGradNorm", "0"}});
  EXPECT_EQ(run({"job.yaml"}), 7);
  EXPECT_THAT(stderr_text(), HasSubstr("is not saved"));
  EXPECT_THAT(checkpoints(), ElementsAre("step-3", "step-4")) << "step 4 is finite, and of no use";
  EXPECT_EQ(fs::last_write_time(out() / "model/model.safetensors"), before) << "the sound model";
  const std::string good = (out() / "checkpoints/step-3").string();
  EXPECT_THAT(stderr_text(), HasSubstr("is step 3: --resume_from_checkpoint " + good));
  // It is sound: a run from it with a rate that works is done, and one checkpoint is left.
  write_job({{"maxSteps", "6"},
             {"saveSteps", "1"},
             {"saveTotalLimit", "1"},
             {"resumeFromCheckpoint", good}});
  EXPECT_EQ(run({"job.yaml"}), 0);
  EXPECT_THAT(checkpoints(), ElementsAre("step-6"));
  EXPECT_TRUE(metrics().back()["loss"].is_number());
}

/// The last step's update is looked at, too, though no step follows it.
TEST_F(NotFiniteRun, AModelThatItsLastStepBrokeIsNotExported) {
  config(0, "SGD");
  write_job(
      {{"maxSteps", "2"}, {"saveSteps", "1"}, {"saveTotalLimit", "1"}, {"learningRate", "1e-3"}});
  ASSERT_EQ(run({"job.yaml"}), 0);
  write_job({{"maxSteps", "3"},
             {"saveSteps", "1"},
             {"saveTotalLimit", "1"},
             {"learningRate", "1e38"},
             {"maxGradNorm", "0"}});
  EXPECT_EQ(run({"job.yaml"}), 7);
  EXPECT_TRUE(metrics().back()["loss"].is_number());
  EXPECT_THAT(checkpoints(), ElementsAre("step-2", "step-3"));
  EXPECT_THAT(stderr_text(), HasSubstr("after the last step it gives no finite loss"));
}

TEST_F(NotFiniteRun, AStopWithUnsoundWeightsSaysThatNothingIsSaved) {
  config(0);
  spoil_model();
  write_job({{"maxSteps", "100000"}, {"saveSteps", "100000"}, {"maxSkippedSteps", "0"}});
  start({"job.yaml"});
  ASSERT_TRUE(soon([&] { return steps_done() >= 3; }));
  kill(pid_, SIGTERM);
  EXPECT_EQ(finish(), 7);
  EXPECT_THAT(stderr_text(), HasSubstr("is not saved: its weights are not finite"));
  EXPECT_THAT(stderr_text(), Not(HasSubstr("all ranks saved one step")));
  EXPECT_EQ(status()["phase"], "Failed");
  EXPECT_TRUE(checkpoints().empty());
}

/// The base under adapters: no update and no save reads it again.
TEST_F(NotFiniteRun, AFrozenBaseIsLookedAtOnce) {
  config(2);
  spoil_model();
  write_job({{"maxSteps", "1"}, {"lora", R"({"r": 2, "targetModules": ["q_proj"]})"}});
  (void)run({"job.yaml"});
  EXPECT_THAT(stderr_text(),
              HasSubstr("before the first step \"model.norm.weight\" has values that"));
}

TEST_F(NotFiniteRun, CutRowsAreCountedAtTheStart) {
  config(1);
  json rows = counting_rows(8, 24);
  for (int i = 0; i < 20; ++i) rows[5]["labels"][i] = -100;
  write("data.json", rows.dump());
  write_job({{"maxSteps", "1"}, {"maxSeqLength", "16"}});
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_THAT(stderr_text(),
              HasSubstr("8 of 8 rows have more than 16 tokens and are cut: 64 tokens are left out, "
                        "and 1 of these rows keep no target"));
  ASSERT_EQ(metrics().size(), 1u) << "the line of the first step has it";
  EXPECT_EQ(metrics()[0]["cut_rows"], 8);
  EXPECT_EQ(metrics()[0]["cut_tokens"], 64);
  EXPECT_EQ(metrics()[0]["rows_without_target"], 1);
  EXPECT_EQ(status()["training"]["cutRows"], 8);
  EXPECT_EQ(status()["training"]["rowsWithoutTarget"], 1);
  ASSERT_EQ(run({"job.yaml"}, "plan"), 0);
  EXPECT_THAT(stdout_text(),
              HasSubstr("8 rows cut, 64 tokens left out; 1 row without a target then"));
  fs::remove_all(out());
  write_job({{"maxSteps", "1"}, {"maxSeqLength", "24"}});
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_THAT(stderr_text(), Not(HasSubstr("are cut")));
  EXPECT_FALSE(metrics().at(0).contains("cut_rows"));
}

/// As Trainer: rope goes on behind the model's positions, and a warning says so.
TEST_F(NotFiniteRun, RowsBeyondTheModelsPositionsAreTrainedOnWhole) {
  config(1);
  json model = json::parse(read_text(at("model") / "config.json"));
  model["max_position_embeddings"] = 16;
  std::ofstream(at("model") / "config.json") << model.dump();
  write("data.json", counting_rows(8, 24).dump());
  write_job({{"maxSteps", "1"}, {"maxSeqLength", "512"}});
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_THAT(stderr_text(), HasSubstr("max_position_embeddings 16"));
  EXPECT_EQ(metrics().at(0)["tokens"], 48) << "two rows of 24";
  fs::remove_all(out());
  write_job({{"maxSteps", "1"}});
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_EQ(metrics().at(0)["tokens"], 32) << "nobody asked for more than the model's length";
}

/// An evaluation is no reason to wait: the steps since the last save are saved, and it is left out.
TEST_F(NotFiniteRun, AStopDuringAnEvaluationSavesTheSteps) {
  config(2);
  write("eval.json", counting_rows(60'000, 12).dump());
  write_job({{"maxSteps", "6"},
             {"saveSteps", "100"},
             {"evaluationStrategy", "steps"},
             {"evalSteps", "3"},
             {"perDeviceEvalBatchSize", "1"},
             {"evalDataPath", "eval.json"}});
  start({"job.yaml"});
  ASSERT_TRUE(soon([&] { return steps_done() >= 3; }));
  kill(pid_, SIGTERM);
  EXPECT_EQ(finish(), 130);
  EXPECT_EQ(metric_steps(), one_to(3)) << "no evaluation's line";
  EXPECT_EQ(status()["checkpoint"]["lastSaved"]["step"], 3);
  EXPECT_EQ(status()["phase"], "Interrupted");
  // The next run makes it up, before its first step, and once.
  std::ofstream(at("eval.json")) << counting_rows(6, 12).dump();
  EXPECT_EQ(run({"job.yaml"}), 0);
  std::vector<int> evaluated;
  for (const json& line : metrics())
    if (line.contains("eval_loss")) evaluated.push_back(line["step"]);
  EXPECT_THAT(evaluated, ElementsAre(3, 6));
  EXPECT_EQ(metrics()[3]["step"], 3) << "behind the line of step 3";
  EXPECT_TRUE(metrics()[3].contains("eval_loss"));
}

TEST_F(NotFiniteRun, AnEvaluationWithoutTargetsHasNoLoss) {
  config(1);
  json rows = counting_rows(3, 12);
  for (json& row : rows)
    for (json& label : row["labels"]) label = -100;
  write("none.json", rows.dump());
  write_job({{"maxSteps", "1"},
             {"evaluationStrategy", "steps"},
             {"evalSteps", "1"},
             {"evalDataPath", "none.json"}});
  ASSERT_EQ(run({"job.yaml"}), 0);
  EXPECT_THAT(stdout_text(), HasSubstr("step 1 eval_loss unknown: no row has a target (3 rows)"));
  EXPECT_THAT(stderr_text(), HasSubstr("evaluation: no row has a target"));
  EXPECT_TRUE(metrics().at(1)["eval_loss"].is_null());
  EXPECT_EQ(metrics().at(1)["eval_rows_without_target"], 3);
}

}  // namespace
}  // namespace dsj::run_test
