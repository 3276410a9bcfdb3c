// dsj checkpoint: shows sound and damaged checkpoints of both kinds; import, export, errors.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/checkpoint_found.h"
#include "cli/verbs.h"
#include "common/files/posix_files.h"
#include "engine/checkpoint/writer.h"
#include "test_paths.h"
#include "tests/engine/deepspeed/saved_model.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using deepspeed::testing_support::SavedModel;
using nlohmann::json;

class CheckpointVerb : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::temp_directory_path() / ("dsj-checkpoint-" + std::to_string(getpid()) + info->name());
    fs::create_directories(folder_ / "ds");
    model_.tag = folder_ / "ds/global_step12";
    model_.write_partitions(files_);
    std::ofstream(folder_ / "ds/latest") << "global_step12";
  }
  void TearDown() override { fs::remove_all(folder_); }

  int run(const std::vector<std::string>& args) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code = run_checkpoint(args);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code;
  }
  bool says(const std::string& text) const { return out_.find(text) != std::string::npos; }
  std::string ds() const { return folder_ / "ds"; }
  std::string run_directory() const { return folder_ / "run"; }
  /// A file of the checkpoint with one bit changed.
  void flip(const fs::path& path, int64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(at);
    file.put(byte);
  }

  fs::path folder_;
  PosixFiles files_;
  SavedModel model_;
  std::string out_, err_;
};

TEST_F(CheckpointVerb, WithoutLatestItAsksForOneOfTheTags) {
  fs::remove(folder_ / "ds/latest");
  EXPECT_EQ(run({"show", ds()}), 2);
  EXPECT_NE(err_.find("no file \"latest\""), std::string::npos) << err_;
  EXPECT_NE(err_.find("name one of them: " + ds() + "/global_step12"), std::string::npos) << err_;
  EXPECT_EQ(out_.find("damaged"), std::string::npos) << out_;
  EXPECT_EQ(run({"show", ds() + "/global_step12"}), 0) << err_;
}

TEST_F(CheckpointVerb, HelpNamesEveryArgumentThatAnExportNeeds) {
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_TRUE(says("--to fp32|universal")) << out_;
  EXPECT_TRUE(says("--model")) << out_;
}

TEST_F(CheckpointVerb, ShowsDeepSpeeds) {
  ASSERT_EQ(run({"show", ds()}), 0) << err_;
  for (const char* line :
       {"written by  DeepSpeed 0.19.8\n", "step        12, 10 updates, 2 skipped\n",
        "ranks       3, ZeRO stage 2\n", "parameters  5 tensors, 31 elements\n",
        "states      exp_avg, exp_avg_sq, master\n", "loss scale  512\n", "in 4 files\n",
        "damage      none: every byte was checked\n"})
    EXPECT_TRUE(says(line)) << line << out_;
  ASSERT_EQ(run({"show", ds() + "/global_step12", "--no-verify", "-o", "json"}), 0);
  const json shown = json::parse(out_);
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0]["worldSize"], 3);
  EXPECT_EQ(shown[0]["damage"], nullptr);
  EXPECT_EQ(shown[0]["verified"], false);
}

TEST_F(CheckpointVerb, ShowsDamageOfDeepSpeeds) {
  const fs::path part = folder_ / "ds/global_step12/zero_pp_rank_2_mp_rank_00_optim_states.pt";
  std::ifstream file(part, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  const float value = deepspeed::testing_support::element("exp_avg", 4, 0);  // the last parameter's
  const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&value), sizeof value));
  ASSERT_NE(at, std::string::npos);
  flip(part, int64_t(at));
  EXPECT_EQ(run({"show", ds()}), 1);
  EXPECT_TRUE(says("do not match their checksum")) << out_;
  EXPECT_EQ(run({"show", ds(), "--no-verify"}), 0);
  fs::remove(part);
  EXPECT_EQ(run({"show", ds(), "--no-verify"}), 1);
  EXPECT_TRUE(says("2 ranks, 3 ranks wrote it")) << out_;
}

TEST_F(CheckpointVerb, ImportsThenShowsOurs) {
  ASSERT_EQ(run({"import", ds(), run_directory()}), 0) << err_;
  EXPECT_TRUE(says("/run/checkpoints/step-12: 5 parameters")) << out_;
  EXPECT_TRUE(says("of DeepSpeed 0.19.8, stage 2, 3 ranks\n")) << out_;
  for (const std::string& path : {run_directory(), run_directory() + "/checkpoints",
                                  run_directory() + "/checkpoints/step-12"}) {
    ASSERT_EQ(run({"show", path}), 0) << err_;
    EXPECT_TRUE(says("written by  dsj\n")) << out_;
    EXPECT_TRUE(says("step        12, 10 updates, 2 skipped\n")) << out_;
    EXPECT_TRUE(says("parameters  5 tensors, 31 elements\n")) << out_;
  }
  EXPECT_EQ(run({"import", ds(), run_directory()}), 2) << "it exists already";
  flip(folder_ / "run/checkpoints/step-12/rank-00000.bin", 5);
  EXPECT_EQ(run({"show", run_directory()}), 1);
  EXPECT_TRUE(says("rank-00000.bin")) << out_;
  EXPECT_EQ(run({"show", run_directory(), "-o", "json"}), 1);
  EXPECT_NE(json::parse(out_)[0]["damage"], nullptr);
}

TEST_F(CheckpointVerb, ShowsTheNewestFirstAndChangesNothing) {
  for (const int64_t step : {3, 5}) {
    const float value = 1;
    const checkpoint::WriteOptions options{.checkpoints_dir = run_directory() + "/checkpoints",
                                           .step = step};
    const checkpoint::Piece piece{"master", "w", 0, {&value, 1}};
    ASSERT_TRUE(checkpoint::write_rank(files_, options, {{piece}}));
    ASSERT_TRUE(checkpoint::publish(
        files_, options, {.extents = {{"master", "w", 1}}, .run_state = {{"step", step}}}));
  }
  fs::remove(folder_ / "run/checkpoints/step-5/rank-00000.bin");
  EXPECT_EQ(run({"show", run_directory()}), 1);
  EXPECT_LT(out_.find("step-5"), out_.find("step-3"));
  EXPECT_TRUE(says("damage      none")) << "of the other one";
  EXPECT_TRUE(fs::exists(folder_ / "run/checkpoints/step-5")) << "nothing is set aside";
}

TEST_F(CheckpointVerb, ExportsTheWeightsOfBoth) {
  const std::string out = folder_ / "weights";
  ASSERT_EQ(run({"export", ds(), out, "--to", "fp32"}), 0) << err_;
  EXPECT_EQ(out_, out + ": 5 tensors, fp32\n");
  EXPECT_TRUE(fs::exists(out + "/model.safetensors"));
  EXPECT_EQ(run({"export", ds(), out, "--to", "fp32"}), 2) << "it exists already";
  ASSERT_EQ(run({"import", ds(), run_directory()}), 0);
  EXPECT_EQ(run({"export", run_directory(), folder_ / "ours", "--to", "fp32"}), 2);
  EXPECT_NE(err_.find("--model DIR"), std::string::npos) << err_;
  const std::string other = std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/tiny-qwen2";
  EXPECT_EQ(run({"export", run_directory(), folder_ / "ours", "--to", "fp32", "--model", other}),
            2);
  EXPECT_NE(err_.find("0 elements in the checkpoint"), std::string::npos) << err_;
}

TEST_F(CheckpointVerb, UsageErrorsExitWithTwoAndAMessage) {
  EXPECT_EQ(run({}), 2);
  EXPECT_EQ(run({"shwo", ds()}), 2);
  EXPECT_NE(err_.find("did you mean \"show\"?"), std::string::npos) << err_;
  EXPECT_EQ(run({"show", folder_}), 2);
  EXPECT_NE(err_.find("no checkpoint"), std::string::npos) << err_;
  EXPECT_EQ(run({"show", folder_ / "nothing"}), 2);
  EXPECT_EQ(run({"import", folder_, run_directory()}), 2);
  EXPECT_EQ(run({"export", ds(), folder_ / "x"}), 2) << "--to is required";
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_TRUE(says("usage: dsj checkpoint"));
}

}  // namespace
}  // namespace dsj::cli
