#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/verbs.h"
#include "tests/cli/model_files.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class ValidateTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() /
              ("dsj-validate-test-" + std::to_string(getpid()) + info->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }

  /// Exit code; stdout is kept.
  int run(std::vector<std::string> args) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run_validate(args);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }

  fs::path folder_;
  std::string out_, err_;
};

TEST_F(ValidateTest, AValidFilePasses) {
  const std::string file = write("ds.json", R"({"train_micro_batch_size_per_gpu": "auto"})");
  EXPECT_EQ(run({file}), 0);
  EXPECT_EQ(out_, file + ": valid: 0 errors, 0 unsupported, 0 warnings\n");
  EXPECT_EQ(run({file, "-o", "json"}), 0);
  EXPECT_EQ(json::parse(out_), json::parse(R"({"valid": true, "findings": [], "notes": []})"));
}

/// As `dsj validate <(jq ... ds.json)` has it: what is read from a pipe cannot be read again.
TEST_F(ValidateTest, APipeIsJudgedAsAFileIs) {
  for (const size_t comment : {size_t{0}, size_t{100}, size_t{200'000}}) {
    const std::string text = R"({"train_micro_batch_size_per_gpu": "auto", /*)" +
                             std::string(comment, 'x') + R"(*/ "zero_optimization": {"stage": 4}})";
    const std::string pipe = (folder_ / ("pipe" + std::to_string(comment))).string();
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    std::thread writer([&] { std::ofstream(pipe) << text; });
    const int code = run({pipe});
    writer.join();
    EXPECT_EQ(code, 1) << comment;
    EXPECT_NE(out_.find("zero_optimization.stage"), std::string::npos) << out_ << err_;
  }
}

TEST_F(ValidateTest, FindingsHavePathLineMessageAndHint) {
  const std::string file = write("ds.json", R"({
  "train_batch_size": 32,
  "zero_optimization": {
    "comm_overlap": true,
    "stage": 4
  },
  "my_own_key": 1,
  "nebula": {"enabled": true}
})");
  EXPECT_EQ(run({file, "-o", "json"}), 1);
  const json answer = json::parse(out_);
  EXPECT_FALSE(answer["valid"]);
  ASSERT_EQ(answer["findings"].size(), 4u) << answer.dump(2);
  std::map<std::string, json> by_path;
  for (const json& finding : answer["findings"]) by_path[finding["path"]] = finding;
  const json slip = by_path["zero_optimization.comm_overlap"];
  EXPECT_EQ(slip["severity"], "error");
  EXPECT_EQ(slip["hint"], "did you mean \"overlap_comm\"?");
  EXPECT_EQ(slip["line"], 4);
  EXPECT_EQ(by_path["zero_optimization.stage"]["message"], "found 4, expected from 0 to 3");
  EXPECT_EQ(by_path["my_own_key"]["severity"], "warning");
  EXPECT_EQ(by_path["nebula"]["severity"], "unsupported");
  EXPECT_EQ(run({file}), 1);
  EXPECT_NE(out_.find(file + ":4:5: error: zero_optimization.comm_overlap: "), std::string::npos)
      << out_;
}

TEST_F(ValidateTest, UnsupportedKeysAreErrorsAndStrictMakesUnknownKeysErrors) {
  const std::string file =
      write("ds.json", R"({"train_batch_size": 8, "nebula": {"enabled": true}, "my_own_key": 1})");
  EXPECT_EQ(run({file}), 1) << "a run refuses it";
  EXPECT_EQ(run({file, "-o", "json"}), 1);
  EXPECT_FALSE(json::parse(out_)["valid"]);
  const std::string unread = write("unread.json", R"({"train_batch_size": 8, "my_own_key": 1})");
  EXPECT_EQ(run({unread}), 0);
  EXPECT_EQ(run({"--strict", unread}), 1);
}

TEST_F(ValidateTest, BatchSizesOfABareConfigAreValidIfSomeWorldSizeFits) {
  EXPECT_EQ(run({write("a.json", R"({"train_batch_size": 32,
      "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})")}),
            0);
  EXPECT_EQ(run({write("b.json", R"({"train_batch_size": 33,
      "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})")}),
            1);
  EXPECT_NE(out_.find("no world size satisfies this"), std::string::npos) << out_;
}

TEST_F(ValidateTest, AFragmentIsValidWithANoteOfWhatTheJobMustSet) {
  for (const char* text : {R"({"zero_optimization": {"stage": 1}})",
                           R"({"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}})",
                           R"("gradient_accumulation_steps": 4)", "{}"}) {
    const std::string file = write("ds.json", text);
    EXPECT_EQ(run({file}), 0) << out_;
    EXPECT_EQ(out_,
              file +
                  ": note: train_micro_batch_size_per_gpu: no batch size: the job has to set it "
                  "(spec.training.perDeviceTrainBatchSize, or "
                  "--per_device_train_batch_size for dsj run)\n" +
                  file + ": valid: 0 errors, 0 unsupported, 0 warnings, 1 note\n");
    EXPECT_EQ(run({file, "--strict", "-o", "json"}), 0);
    const json answer = json::parse(out_);
    EXPECT_TRUE(answer["valid"]);
    EXPECT_EQ(answer["findings"], json::array());
    ASSERT_EQ(answer["notes"].size(), 1u);
    EXPECT_EQ(answer["notes"][0]["path"], "train_micro_batch_size_per_gpu");
    EXPECT_NE(answer["notes"][0]["hint"].get<std::string>().find("perDeviceTrainBatchSize"),
              std::string::npos);
  }
}

TEST_F(ValidateTest, AnErrorInAFragmentIsReportedWithTheNote) {
  const std::string file = write("ds.json", R"({"zero_optimization": {"stage": 7}})");
  EXPECT_EQ(run({file, "-o", "json"}), 1);
  const json answer = json::parse(out_);
  EXPECT_FALSE(answer["valid"]);
  EXPECT_EQ(answer["findings"][0]["path"], "zero_optimization.stage");
  EXPECT_EQ(answer["notes"].size(), 1u);
  EXPECT_EQ(run({file}), 1);
  EXPECT_NE(out_.find("not valid: 1 error, 0 unsupported, 0 warnings, 1 note"), std::string::npos)
      << out_;
}

TEST_F(ValidateTest, InvalidTextIsAFinding) {
  const std::string file = write("ds.json", "{\"a\": 1,\n \"a\": 2}");
  EXPECT_EQ(run({file, "-o", "json"}), 1);
  const json finding = json::parse(out_)["findings"][0];
  EXPECT_EQ(finding["line"], 2);
  EXPECT_NE(finding["message"].get<std::string>().find("given twice"), std::string::npos);
}

TEST_F(ValidateTest, UsageErrorsAndUnreadableFilesExitWithTwo) {
  EXPECT_EQ(run({}), 2);
  EXPECT_EQ(run({"--no-such-flag", "x"}), 2);
  EXPECT_EQ(run({"-o", "xml", "x"}), 2);
  EXPECT_EQ(run({(folder_ / "absent.json").string()}), 2);
  EXPECT_EQ(run({folder_.string()}), 2);
  EXPECT_NE(err_.find("dsj validate: "), std::string::npos);
  EXPECT_EQ(run({write("roll.yaml", "actor_train: {}\n")}), 2);
  EXPECT_NE(err_.find("ROLL"), std::string::npos);
  const char* accelerates =
      "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n"
      "deepspeed_config:\n  zero_stage: 2\n";
  EXPECT_EQ(run({write("default_config.yaml", accelerates)}), 2);
  EXPECT_NE(err_.find("dsj import accelerate"), std::string::npos) << err_;
  EXPECT_EQ(run({write("default_config.json", accelerates)}), 1);
  EXPECT_NE(out_.find("dsj import accelerate"), std::string::npos) << out_;
  EXPECT_EQ(run({write("ds.yaml", "zero_optimization:\n  stage: 2\n")}), 2);
  EXPECT_NE(err_.find("ds_config as YAML"), std::string::npos) << err_;
  EXPECT_EQ(run({"--help"}), 0);
}

TEST_F(ValidateTest, AJobIsCheckedWithItsArguments) {
  write("data.json", token_rows(2).dump());
  write_model(folder_ / "model");
  const std::string text = R"(apiVersion: training.dsj.dev/v1alpha1
kind: DeepSpeedJob
metadata: {name: a}
spec:
  deepspeed:
    config:
      train_micro_batch_size_per_gpu: 4
      zero_optimization: {stage: 2}
  training:
    modelNameOrPath: model
    dataPath: data.json
    outputDir: out
    perDeviceTrainBatchSize: 2
  workers: {slotsPerWorker: 2}
)";
  const std::string file = write("job.yaml", text);
  EXPECT_EQ(run({file}), 1);
  EXPECT_NE(out_.find(file +
                      ":7:7: error: "
                      "spec.deepspeed.config.train_micro_batch_size_per_gpu: ds_config says "
                      "4, training.perDeviceTrainBatchSize says 2 (" +
                      file + ":13:5)"),
            std::string::npos)
      << out_;
  std::string good = text;
  good.replace(good.find("gpu: 4"), 6, "gpu: 2");
  EXPECT_EQ(run({write("good.yaml", good)}), 0) << out_;
}

TEST_F(ValidateTest, AJobWithoutABatchSizeIsRefused) {
  const std::string file = write("job.yaml", R"(apiVersion: training.dsj.dev/v1alpha1
kind: DeepSpeedJob
metadata: {name: a}
spec:
  deepspeed:
    config:
      zero_optimization: {stage: 1}
  training: {modelNameOrPath: model, dataPath: data.jsonl}
)");
  EXPECT_EQ(run({file, "-o", "json"}), 1);
  const json answer = json::parse(out_);
  EXPECT_EQ(answer["notes"], json::array());
  json error;
  for (const json& finding : answer["findings"])
    if (finding["path"].get<std::string>().starts_with("spec.deepspeed")) error = finding;
  EXPECT_EQ(error["path"], "spec.deepspeed.config.train_micro_batch_size_per_gpu");
  EXPECT_NE(error["hint"].get<std::string>().find("perDeviceTrainBatchSize"), std::string::npos);
}

}  // namespace
}  // namespace dsj::cli
