// The measured rows of a job, and the use that `dsj plan` makes of them.
#include "cli/check/measured_rows.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/verbs.h"
#include "engine/data/batches/micro_batch_sizes.h"
#include "tests/cli/model_files.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class MeasuredRowsTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::temp_directory_path() / ("dsj-rows-test-" + std::to_string(getpid()) + info->name());
    write_model(folder_ / "model");
    write_rows({10, 20, 30, 40, 50, 60, 70, 80});
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// Each row's first five labels are masked.
  void write_rows(const std::vector<int64_t>& lengths) {
    std::ofstream out(folder_ / "rows.jsonl");
    for (const int64_t length : lengths) {
      std::vector<int64_t> ids(length, 7), labels(length, 7);
      std::fill(labels.begin(), labels.begin() + 5, -100);
      out << json{{"input_ids", ids}, {"labels", labels}} << "\n";
    }
  }
  json plan(const json& training = json::object(), int expected = 0) {
    json job = {{"apiVersion", "training.dsj.dev/v1alpha1"},
                {"kind", "DeepSpeedJob"},
                {"metadata", {{"name", "rows"}}},
                {"spec",
                 {{"deepspeed", {{"config", {{"train_micro_batch_size_per_gpu", "auto"}}}}},
                  {"training",
                   {{"modelNameOrPath", (folder_ / "model").string()},
                    {"dataPath", (folder_ / "rows.jsonl").string()},
                    {"outputDir", (folder_ / "out").string()},
                    {"shuffle", false},
                    {"maxSeqLength", 100},
                    {"numTrainEpochs", 1},
                    {"perDeviceTrainBatchSize", 2}}}}}};
    job["spec"]["training"].update(training);
    std::ofstream(folder_ / "job.yaml") << job;
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    EXPECT_EQ(run_plan(std::vector<std::string>{(folder_ / "job.yaml").string(), "-o", "json"}),
              expected);
    const std::string out = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return out.empty() ? json() : json::parse(out);
  }
  fs::path folder_;
  std::string err_;
};

int64_t activations(const json& plan) {
  return plan["memory"]["bytesPerRank"]["activations"];
}

TEST_F(MeasuredRowsTest, APlanUsesTheLargestMicroBatchOfTheData) {
  const json got = plan();
  EXPECT_EQ(got["memory"]["rows"], json::parse(R"({"from": "data", "count": 8,
      "tokens": {"shortest": 10, "median": 40, "p90": 70, "p99": 70, "longest": 80},
      "largestMicroBatch": {"tokens": 150, "targets": 140}})"));
  // Half the tokens: about half the bytes.
  write_rows({5, 10, 15, 20, 25, 30, 35, 40});
  const double half = static_cast<double>(activations(plan()));
  EXPECT_NEAR(half / static_cast<double>(activations(got)), 0.5, 0.05);
  // Rows are cut, as in the run.
  EXPECT_EQ(plan({{"maxSeqLength", 32}})["memory"]["rows"]["largestMicroBatch"]["tokens"], 64);
}

TEST_F(MeasuredRowsTest, WithoutReadableRowsTheLongestAreAssumed) {
  std::ofstream(folder_ / "rows.jsonl") << "{\"input_ids\": [1], \"labels\": []}\n";
  const json got = plan({{"maxSteps", 3}}, 1);
  const json& rows = got["memory"]["rows"];
  EXPECT_EQ(rows["from"], "maxSeqLength");
  EXPECT_NE(rows["because"].get<std::string>().find("row 0"), std::string::npos) << rows;
  EXPECT_EQ(rows["largestMicroBatch"]["tokens"], 200);
}

TEST_F(MeasuredRowsTest, PacksAreDealtInsteadOfRows) {
  // 80 + 20, 70 + 30, 60 + 40, 50 + 10: four packs, two to a step.
  const json got = plan({{"packing", true}});
  EXPECT_EQ(got["config"]["total_steps"], 2);
  EXPECT_TRUE(got["complete"]);
  const json& rows = got["memory"]["rows"];
  EXPECT_EQ(rows["packed"]["count"], 4);
  EXPECT_DOUBLE_EQ(rows["packed"]["filled"], 0.9);
  EXPECT_EQ(rows["largestMicroBatch"]["tokens"], 200);
  EXPECT_EQ(rows["largestMicroBatch"]["targets"], 180);
  // 360 tokens, one after the other: three packs of 100 and one of 60.
  const json wrapped = plan({{"packing", true}, {"packingStrategy", "wrapped"}})["memory"]["rows"];
  EXPECT_EQ(wrapped["packed"], (json{{"count", 4}, {"filled", 0.9}, {"strategy", "wrapped"}}));
  EXPECT_EQ(wrapped["largestMicroBatch"], (json{{"tokens", 200}, {"targets", 198}}));
  // Held-out rows are not packed.
  const json held = plan({{"packing", true}, {"validationSplitPercentage", 50}});
  EXPECT_EQ(held["memory"]["rows"]["packed"]["count"], 4) << "50, 60, 70 and 80 by themselves";
  EXPECT_EQ(held["config"]["total_steps"], 2);
}

TEST_F(MeasuredRowsTest, WithoutItsDataAPackedJobIsIncomplete) {
  fs::remove(folder_ / "rows.jsonl");
  EXPECT_FALSE(plan({{"packing", true}}, 1)["complete"]);
  std::ofstream(folder_ / "rows.jsonl") << "{\"input_ids\": [1], \"labels\": []}\n";
  EXPECT_FALSE(plan({{"packing", true}}, 1)["complete"]);
  EXPECT_NE(err_.find("1 of 1 rows are bad"), std::string::npos) << err_;
  EXPECT_TRUE(plan({{"packing", true}, {"maxSteps", 5}}, 1)["complete"]);
}

TEST_F(MeasuredRowsTest, TheOrderOfAGroupedJobIsFollowed) {
  std::vector<int64_t> lengths;
  std::vector<data::RowSize> sizes;
  for (int32_t i = 0; i < 64; ++i) {
    lengths.push_back(10 + i);
    sizes.push_back({10 + i, 5 + i});
  }
  write_rows(lengths);
  const auto largest = [&](bool grouped) {
    data::SamplerOptions options{.rows = 64, .micro_batch = 2};
    if (grouped)
      options.lengths = std::make_shared<const std::vector<int32_t>>(data::tokens_of(sizes));
    return data::largest_micro_batches(data::Sampler(options), sizes, 32).at(2).tokens;
  };
  ASSERT_NE(largest(true), largest(false));
  for (const bool grouped : {true, false}) {
    const json got = plan({{"groupByLength", grouped}, {"shuffle", true}});
    EXPECT_EQ(got["memory"]["rows"]["largestMicroBatch"]["tokens"], largest(grouped));
  }
  plan({{"groupByLength", true}, {"shuffle", false}}, 1);
  EXPECT_NE(err_.find("training.groupByLength"), std::string::npos) << err_;
}

}  // namespace
}  // namespace dsj::cli
