// dsj data: how a row is read, and errors of rows.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cli/verbs.h"
#include "test_paths.h"
#include "tests/cli/model_files.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class DataVerb : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / ("dsj-data-" + std::to_string(getpid()) + info->name());
    write_model(folder_ / "model");
    write_rows(json::array(
        {row({7, 8, 9}, {-100, 8, 9}), row({1, 2, 3, 4, 5, 6}, {-100, -100, 3, -100, 5, 6})}));
    job_ = {{"apiVersion", "training.dsj.dev/v1alpha1"},
            {"kind", "DeepSpeedJob"},
            {"metadata", {{"name", "data"}}},
            {"spec",
             {{"deepspeed", {{"config", {{"train_micro_batch_size_per_gpu", 1}}}}},
              {"training",
               {{"modelNameOrPath", (folder_ / "model").string()},
                {"dataPath", (folder_ / "rows.json").string()},
                {"outputDir", (folder_ / "out").string()},
                {"maxSeqLength", 4},
                {"maxSteps", 1}}}}}};
    std::ofstream(folder_ / "job.yaml") << job_.dump();
  }
  void TearDown() override { fs::remove_all(folder_); }
  static json row(const std::vector<int>& ids, const std::vector<int>& labels) {
    return {{"input_ids", ids}, {"labels", labels}};
  }
  void write_rows(const json& rows) { std::ofstream(folder_ / "rows.json") << rows.dump(); }
  int run(std::vector<std::string> args) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run_data(args);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }
  bool says(const std::string& text) const { return out_.find(text) != std::string::npos; }
  std::string job() const { return (folder_ / "job.yaml").string(); }

  fs::path folder_;
  json job_;
  std::string out_, err_;
};

TEST_F(DataVerb, ShowPrintsTokensWithLossAndCuts) {
  ASSERT_EQ(run({"show", job()}), 0) << err_;
  EXPECT_TRUE(says("row 0 of 2: 3 tokens, 2 with loss")) << out_;
  EXPECT_FALSE(says("\ncut: ")) << out_;
  EXPECT_TRUE(says("  no loss      1 tokens  7\n")) << out_;
  EXPECT_TRUE(says("  loss         2 tokens  8 9\n")) << out_;
  ASSERT_EQ(run({"show", job(), "--row", "1"}), 0) << err_;
  EXPECT_TRUE(says("row 1 of 2: 4 tokens, 1 with loss")) << out_;
  EXPECT_TRUE(says("cut: of 6 tokens the run keeps 4")) << out_;
  EXPECT_TRUE(says("2 with loss are lost")) << out_;
  EXPECT_TRUE(says("<- cut here")) << out_;
  ASSERT_EQ(run({"show", job(), "--row", "1", "--tokens"}), 0) << err_;
  EXPECT_TRUE(says("       2        3  loss    3\n")) << out_;
  EXPECT_EQ(run({"show", job(), "--row", "2"}), 2);
  EXPECT_NE(err_.find("there are 2 rows, counted from 0"), std::string::npos) << err_;
}

TEST_F(DataVerb, RowsEndWithTheTokenThatTheJobNames) {
  for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
    fs::copy(fs::path(DSJ_SOURCE_DIR) / "tests/fixtures/preference" / name, folder_ / "model");
  }
  write_rows(json::array({{{"instruction", "a"}, {"input", ""}, {"output", "b"}}}));
  job_["spec"]["training"]["maxSeqLength"] = 200;
  for (const char* eos : {"<|endoftext|>", "<|im_end|>"}) {
    job_["spec"]["training"]["eosToken"] = eos;
    std::ofstream(folder_ / "job.yaml") << job_.dump();
    ASSERT_EQ(run({"show", job(), "--tokens"}), 0) << err_;
    EXPECT_EQ(says("<|im_end|>"), eos == std::string("<|im_end|>")) << out_;
    EXPECT_TRUE(says(eos)) << out_;
  }
  job_["spec"]["training"]["eosToken"] = "</s>";
  std::ofstream(folder_ / "job.yaml") << job_.dump();
  EXPECT_EQ(run({"show", job()}), 2);
  EXPECT_NE(err_.find("has no token '</s>'"), std::string::npos) << err_;
}

TEST_F(DataVerb, CheckCountsCutRowsAndRowsWithoutLoss) {
  ASSERT_EQ(run({"check", job()}), 0) << err_;
  EXPECT_TRUE(says("2 rows, each can be read")) << out_;
  EXPECT_TRUE(says("9 tokens, 5 with loss; 1 rows are longer than 4 tokens")) << out_;
}

TEST_F(DataVerb, BothPrintJson) {
  ASSERT_EQ(run({"show", job(), "--row", "1", "-o", "json"}), 0) << err_;
  const json shown = json::parse(out_);
  EXPECT_EQ(shown["inputIds"], json({1, 2, 3, 4}));
  EXPECT_EQ(shown["labels"], json({-100, -100, 3, -100}));
  EXPECT_EQ(shown["targets"], 1);
  EXPECT_EQ(shown["uncutTokens"], 6);
  EXPECT_EQ(shown["uncutTargets"], 3);
  ASSERT_EQ(run({"check", job(), "-o", "json"}), 0) << err_;
  const json checked = json::parse(out_);
  EXPECT_TRUE(checked["valid"]);
  EXPECT_EQ(checked["tokens"], 9);
  EXPECT_EQ(checked["targets"], 5);
  EXPECT_EQ(checked["cutRows"], 1);
  int64_t rows = 0;
  for (const json& bar : checked["lengths"]) rows += bar["rows"].get<int64_t>();
  EXPECT_EQ(rows, 2);
  write_rows(json::array({row({1, 2}, {1}), row({1, 2}, {1}), row({1, 600}, {1, 2})}));
  EXPECT_EQ(run({"check", job(), "-o", "json"}), 1);
  const json bad = json::parse(out_);
  EXPECT_FALSE(bad["valid"]);
  EXPECT_EQ(bad["problems"].size(), 2u) << out_;
}

TEST_F(DataVerb, CheckCountsEachKindOfBadRowOverTheWholeFile) {
  json rows = json::array();
  for (int i = 0; i < 50; ++i) rows.push_back(row({1, 2}, {1}));
  rows.push_back(row({1}, {1}));
  rows.push_back(row({1, 600}, {1, 2}));
  write_rows(rows);
  EXPECT_EQ(run({"check", job()}), 1);
  EXPECT_TRUE(says("51 of 52 rows are bad")) << out_;
  EXPECT_TRUE(says("         50 rows: ")) << out_;
  EXPECT_TRUE(says("          1 rows: input_ids[1]: ")) << out_;
  EXPECT_EQ(run({"check"}), 2);
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_EQ(run({"nonsense"}), 2);
}

}  // namespace
}  // namespace dsj::cli
