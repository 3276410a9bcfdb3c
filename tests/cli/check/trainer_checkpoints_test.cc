#include "cli/check/trainer_checkpoints.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;

TEST(TrainerCheckpoints, FindsTheOneWithTheMostSteps) {
  const fs::path folder = fs::temp_directory_path() / ("dsj-trainer-" + std::to_string(getpid()));
  EXPECT_EQ(newest_trainer_checkpoint(folder), "");
  for (const char* name : {"checkpoint-900", "checkpoint-1000", "checkpoint-last", "step-2000"})
    fs::create_directories(folder / name);
  std::ofstream(folder / "checkpoint-3000") << "a file";
  EXPECT_EQ(newest_trainer_checkpoint(folder), folder / "checkpoint-1000");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace dsj::cli
