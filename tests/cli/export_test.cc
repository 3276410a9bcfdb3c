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

class ExportTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::temp_directory_path() / ("dsj-export-test-" + std::to_string(getpid()) + info->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string model(const std::string& name) {
    return std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/" + name;
  }
  int run(const std::vector<std::string>& args) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run_export(args);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }

  fs::path folder_;
  std::string out_, err_;
};

TEST_F(ExportTest, WritesAGgufFile) {
  const std::string file = folder_ / "tiny-{ftype}.gguf";
  ASSERT_EQ(run({"gguf", model("tiny-qwen2"), "--outfile", file, "--outtype", "q8_0"}), 0) << err_;
  std::ifstream written(folder_ / "tiny-q8_0.gguf", std::ios::binary);
  std::string magic(4, ' ');
  written.read(magic.data(), 4);
  EXPECT_EQ(magic, "GGUF");
  EXPECT_NE(out_.find("architecture qwen2, 27 tensors"), std::string::npos) << out_;
  EXPECT_NE(err_.find("dsj export gguf: the model has no tokenizer"), std::string::npos) << err_;
}

TEST_F(ExportTest, PrintsJson) {
  const std::string file = folder_ / "tiny.gguf";
  ASSERT_EQ(run({"gguf", model("tiny-qwen2"), "--outfile", file, "-o", "json"}), 0) << err_;
  const auto result = nlohmann::json::parse(out_);
  EXPECT_EQ(result["path"], file);
  EXPECT_EQ(result["architecture"], "qwen2");
  EXPECT_EQ(result["tensors"], 27);
  EXPECT_EQ(result["bytes"], fs::file_size(file));
  EXPECT_EQ(result["notes"].size(), 1u);
}

TEST_F(ExportTest, ARefusalLeavesNoFile) {
  const std::string file = folder_ / "tiny.gguf";
  EXPECT_EQ(run({"gguf", model("tiny-gptj"), "--outfile", file}), 2);
  EXPECT_NE(err_.find("\"gptj\" cannot be exported to GGUF"), std::string::npos) << err_;
  EXPECT_EQ(run({"gguf", model("tiny-qwen2"), "--outfile", file, "--outtype", "q4_0"}), 2);
  EXPECT_EQ(run({"gguf", folder_ / "nothing", "--outfile", file}), 2);
  EXPECT_EQ(run({"onnx"}), 2);
  EXPECT_NE(err_.find("\"onnx\" is not a format"), std::string::npos) << err_;
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace dsj::cli
