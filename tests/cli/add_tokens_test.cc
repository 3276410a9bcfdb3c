#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/verbs.h"
#include "test_paths.h"
#include "tests/cli/model_files.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;

class AddTokensTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("dsj-add-tokens-test-" + std::to_string(getpid()));
    write_model(folder_ / "model");
    fs::copy(fs::path(DSJ_SOURCE_DIR) / "tests/fixtures/preference/tokenizer.json",
             folder_ / "model");
  }
  void TearDown() override { fs::remove_all(folder_); }
  int run(const std::vector<std::string>& args) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run_add_tokens(args);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }

  fs::path folder_;
  std::string out_, err_;
};

TEST_F(AddTokensTest, WritesAModelDirectory) {
  const std::string model = folder_ / "model", made = folder_ / "made";
  ASSERT_EQ(run({"--model", model, "--tokens", "<think>,</think>,<|im_end|>", "--output", made}), 0)
      << err_;
  EXPECT_EQ(out_, "264  <think>\n265  </think>\n<|im_end|> is in the tokenizer\n" + made +
                      ": 512 rows in the embedding, before 512\n");
  EXPECT_TRUE(fs::exists(made + "/model.safetensors"));
  ASSERT_EQ(run({"--model", made, "--tokens", "<a>", "--output", made + "2", "-o", "json"}), 0)
      << err_;
  EXPECT_EQ(nlohmann::json::parse(out_)["added"], nlohmann::json({{"<a>", 266}}));
}

TEST_F(AddTokensTest, BadInputWritesNothing) {
  const std::string model = folder_ / "model", made = folder_ / "made";
  EXPECT_EQ(run({"--model", model, "--tokens", "<|im_end|>", "--output", made}), 2);
  EXPECT_NE(err_.find("has all these tokens"), std::string::npos) << err_;
  EXPECT_EQ(run({"--model", model, "--tokens", "<a>", "--output", model}), 2);
  EXPECT_NE(err_.find("already exists"), std::string::npos) << err_;
  EXPECT_FALSE(fs::exists(made));
}

}  // namespace
}  // namespace dsj::cli
