// `dsj run` through whole epochs, as Trainer counts them: short last steps, a stop between them, and
// the loss of rows with unequal targets, whoever is dealt them.
#include <gmock/gmock.h>

#include <cmath>

#include "test_paths.h"
#include "tests/run/run_support.h"

namespace dsj::run_test {
namespace {

using testing::HasSubstr;

class EpochsRun : public RunTest {
 protected:
  static constexpr int kLength = 10;

  void SetUp() override {
    if (!has_engine()) GTEST_SKIP() << "dsj-train is not built (DSJ_ENGINE=OFF)";
    RunTest::SetUp();
    write("data.json", counting_rows(33, kLength).dump());
  }
  /// A run of `data` with micro-batches of `micro` rows; the exit code.
  int train(int ranks, int micro, int accumulation, const std::vector<std::string>& more,
            int stage = 2) {
    write("ds.json", json{{"train_micro_batch_size_per_gpu", "auto"},
                          {"gradient_accumulation_steps", "auto"},
                          {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", "auto"}}}}},
                          {"zero_optimization", {{"stage", stage}}}}
                         .dump());
    std::vector<std::string> line = {
        "--nproc_per_node=" + std::to_string(ranks),
        "--deepspeed=ds.json",
        "--model_name_or_path=model",
        "--output_dir=out",
        "--per_device_train_batch_size=" + std::to_string(micro),
        "--gradient_accumulation_steps=" + std::to_string(accumulation)};
    line.insert(line.end(), more.begin(), more.end());
    return run(line);
  }
  std::vector<json> metrics() const {
    std::vector<json> lines;
    std::ifstream in(out() / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
    return lines;
  }
  std::vector<double> losses() const {
    std::vector<double> values;
    for (const json& line : metrics()) values.push_back(line["loss"]);
    return values;
  }
  std::vector<int64_t> rows_of_steps() const {
    std::vector<int64_t> rows;
    for (const json& line : metrics()) rows.push_back(line["tokens"].get<int64_t>() / kLength);
    return rows;
  }
};

TEST_F(EpochsRun, TheLastStepHasTheRowsThatAreLeft) {
  const std::vector<std::string> epochs = {"--data_path=data.json", "--num_train_epochs=3",
                                           "--learning_rate=1e-4", "--save_strategy=no"};
  ASSERT_EQ(train(2, 2, 8, epochs), 0);
  EXPECT_EQ(rows_of_steps(), (std::vector<int64_t>{32, 4, 32, 4, 32, 4})) << "accelerate fills up";
  fs::remove_all(out());
  ASSERT_EQ(train(1, 2, 8, epochs), 0);
  EXPECT_EQ(rows_of_steps(), (std::vector<int64_t>{16, 16, 1, 16, 16, 1, 16, 16, 1}));
  EXPECT_NEAR(metrics()[8]["lr"], 1e-4 / 9, 1e-12) << "nine steps";
}

/// At rate 0 a step's loss is the mean of its own rows: the last of three is row 33 alone.
TEST_F(EpochsRun, AShortStepsLossIsTheMeanOfItsOwnRows) {
  const std::vector<std::string> still = {"--learning_rate=0", "--save_strategy=no",
                                          "--shuffle=False", "--num_train_epochs=1"};
  auto more = still;
  more.push_back("--data_path=data.json");
  ASSERT_EQ(train(1, 2, 8, more), 0);
  const auto whole = losses();
  ASSERT_EQ(whole.size(), 3u);
  fs::remove_all(out());
  write("last.json", json::array({counting_rows(33, kLength).back()}).dump());
  more = still;
  more.push_back("--data_path=last.json");
  ASSERT_EQ(train(1, 2, 8, more), 0);
  ASSERT_EQ(losses().size(), 1u);
  EXPECT_NEAR(losses()[0], whole[2], 1e-6 * whole[2]);
}

/// Stops before an epoch's short step, behind it, and in the next epoch.
TEST_F(EpochsRun, AStopAnywhereInAnEpochChangesNothing) {
  for (const int stage : {0, 3}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    fs::remove_all(out());
    const std::vector<std::string> epochs = {"--data_path=data.json", "--num_train_epochs=3",
                                             "--learning_rate=3e-3", "--save_steps=1"};
    ASSERT_EQ(train(2, 2, 4, epochs, stage), 0);
    const auto expected = losses();
    ASSERT_EQ(expected.size(), 9u);
    EXPECT_EQ(rows_of_steps()[2], 4) << "one micro-step of four: the last row, and 3 again";
    for (const int kept : {2, 3, 5}) {
      for (int step = kept + 1; step <= 9; ++step)
        fs::remove_all(out() / ("checkpoints/step-" + std::to_string(step)));
      fs::remove(out() / "status.yaml");
      ASSERT_EQ(train(2, 2, 4, epochs, stage), 0);
      EXPECT_THAT(stdout_text(), HasSubstr("resumed from step " + std::to_string(kept)));
      EXPECT_EQ(losses(), expected) << "bit for bit";
    }
  }
}

/// Rows of 1, 31, 9 and 20 targets: their mean is that of 61 targets, for four ranks, for one with
/// accumulation, and for two. The other two means are the user's to choose.
TEST_F(EpochsRun, UnequalTargetsHaveOneLossWhoeverIsDealtThem) {
  json rows = json::array();
  const std::vector<int> targets = {1, 31, 9, 20};
  for (size_t row = 0; row < targets.size(); ++row) {
    std::vector<int> ids, labels;
    for (int i = 0; i < 32; ++i) ids.push_back(static_cast<int>(row * 37 + i * 11) % 200);
    labels = ids;
    std::fill(labels.begin(), labels.end() - targets[row], -100);
    rows.push_back({{"input_ids", ids}, {"labels", labels}});
  }
  const auto loss = [&](int ranks, int micro, int accumulation, const char* file,
                        const std::string& means = "") {
    fs::remove_all(out());
    std::vector<std::string> more = {std::string("--data_path=") + file, "--learning_rate=0",
                                     "--max_steps=1", "--save_strategy=no", "--shuffle=False"};
    if (!means.empty()) more.push_back(means);
    EXPECT_EQ(train(ranks, micro, accumulation, more), 0);
    return losses().at(0);
  };
  write("four.json", rows.dump());
  std::vector<double> alone;
  double by_token = 0, by_row = 0, by_rank = 0;
  for (size_t row = 0; row < targets.size(); ++row) {
    write("one.json", json::array({rows[row]}).dump());
    alone.push_back(loss(1, 1, 1, "one.json"));
    by_token += alone[row] * targets[row] / 61;
    by_row += alone[row] / 4;
  }
  // Two ranks take rows 0 and 2, and 1 and 3.
  by_rank = (alone[0] * 1 + alone[2] * 9) / 20 + (alone[1] * 31 + alone[3] * 20) / 102;
  EXPECT_GT(std::abs(by_token - by_row), 1e-4) << "this shows nothing";
  for (const auto& [ranks, micro, accumulation] :
       {std::tuple{4, 1, 1}, {1, 1, 4}, {1, 4, 1}, {2, 1, 2}, {2, 2, 1}})
    EXPECT_NEAR(loss(ranks, micro, accumulation, "four.json"), by_token, 1e-5) << ranks;
  EXPECT_NEAR(loss(4, 1, 1, "four.json", "--loss_normalization=micro-batch"), by_row, 1e-5);
  EXPECT_NEAR(loss(1, 1, 4, "four.json", "--loss_normalization=micro-batch"), by_row, 1e-5);
  EXPECT_NEAR(loss(2, 1, 2, "four.json", "--average_tokens_across_devices=False"), by_rank, 1e-5);
}

}  // namespace
}  // namespace dsj::run_test
