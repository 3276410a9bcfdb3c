#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/verbs.h"
#include "test_paths.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;

class MergeTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::temp_directory_path() / ("dsj-merge-test-" + std::to_string(getpid()) + info->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string fixture(const std::string& name) {
    return std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/" + name;
  }
  int run(const std::vector<std::string>& args) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run_merge(args);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }

  fs::path folder_;
  std::string out_, err_;
};

TEST_F(MergeTest, WritesAModelDirectory) {
  const std::string merged = folder_ / "deep/merged";
  ASSERT_EQ(run({"--base", fixture("tiny-qwen2"), "--adapter", fixture("lora/plain/final"),
                 "--output", merged}),
            0)
      << err_;
  EXPECT_EQ(out_, merged + ": 27 tensors, 6 with an adapter added, 0 replaced\n");
  ASSERT_EQ(run({"--base", fixture("tiny-qwen2"), "--adapter", fixture("lora/plain/final"),
                 "--output", merged + "2", "-o", "json"}),
            0)
      << err_;
  EXPECT_EQ(nlohmann::json::parse(out_), nlohmann::json({{"model", merged + "2"},
                                                         {"tensors", 27},
                                                         {"updated", 6},
                                                         {"replaced", 0},
                                                         {"leftOut", nlohmann::json::array()}}));
  EXPECT_EQ(err_, merged + "2: 27 tensors, 6 with an adapter added, 0 replaced\n");
  EXPECT_TRUE(fs::exists(merged + "/model.safetensors"));
  EXPECT_TRUE(fs::exists(merged + "/config.json"));
}

TEST_F(MergeTest, UsageErrorsExitWithTwoAndAMessage) {
  fs::create_directories(folder_ / "run/model");
  std::ofstream(folder_ / "run/model/adapter_config.json") << "{}";
  const std::string merged = folder_ / "merged";
  const struct {
    std::vector<std::string> args;
    const char* says;
  } cases[] = {
      {{"--adapter", folder_ / "run", "--output", merged}, "name its model: "},
      {{"--adapter", fixture("lora/plain/final"), "--output", merged}, "BASE"},
      {{"--base", fixture("tiny-qwen2"), "--adapter", fixture("tiny-qwen2"), "--output", merged},
       "adapter_config.json"},
      {{"--base", fixture("tiny-qwen1.5"), "--adapter", fixture("lora/plain/final"), "--output",
        merged},
       "has shape"},
      {{"--base", fixture("tiny-qwen2"), "--adapter", fixture("lora/plain/final")}, "--output"},
  };
  for (const auto& c : cases) {
    EXPECT_NE(run(c.args), 0);
    EXPECT_NE(err_.find(c.says), std::string::npos) << err_;
    EXPECT_FALSE(fs::exists(merged));
  }
}

}  // namespace
}  // namespace dsj::cli
