// A volume after a kill in mid-save: the next attempt begins with what was published, and with the
// space that the dead one took.
#include "engine/train/inputs/leftovers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "common/files/posix_files.h"
#include "engine/checkpoint/search.h"
#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

namespace fs = std::filesystem;

TEST(LeftoversTest, OneKillInMidSaveCostsNoSpace) {
  const fs::path out = fs::path(testing::TempDir()) / ("dsj_leftovers_" + std::to_string(getpid()));
  fs::remove_all(out);
  const auto put = [&](const std::string& name, const std::string& text = "x") {
    fs::create_directories((out / name).parent_path());
    std::ofstream(out / name) << text;
  };
  put("checkpoints/attempt", "3\n");
  put("checkpoints/.staging-step-40-attempt-2/rank-00000.bin");
  put("checkpoints/.trash-step-10/rank-00000.bin");
  put(".model.staging/model.safetensors");
  put("notes.txt");
  std::vector<std::string> warnings[2];
  testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger&) {
    const JobFile job{.name = "job", .attempt = 3, .output_dir = out.string()};
    PosixFiles files;
    warnings[collectives.rank()] = clear_leftovers(files, job, collectives, at::kCPU);
  });
  EXPECT_TRUE(warnings[0].empty() && warnings[1].empty());
  std::vector<std::string> left;
  for (const auto& entry : fs::recursive_directory_iterator(out))
    if (entry.is_regular_file()) left.push_back(fs::relative(entry.path(), out).string());
  std::ranges::sort(left);
  EXPECT_EQ(left, (std::vector<std::string>{"checkpoints/attempt", "notes.txt"}));
  fs::remove_all(out);
}

}  // namespace
}  // namespace dsj::train
