#include "job/spec/ranks_here.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace dsj::jobspec {
namespace {

TEST(RanksHere, TorchrunsWords) {
  const Processors none{.cpus = 8, .gpus = 0}, two{.cpus = 8, .gpus = 2};
  EXPECT_EQ(ranks_of("cpu", none), 8);
  EXPECT_EQ(ranks_of("auto", none), 8);
  EXPECT_EQ(ranks_of("gpu", none), std::nullopt) << "torchrun refuses it, too";
  EXPECT_EQ(ranks_of("cpu", two), 8);
  EXPECT_EQ(ranks_of("auto", two), 2);
  EXPECT_EQ(ranks_of("gpu", two), 2);
  EXPECT_EQ(ranks_of("4", two), std::nullopt);
}

TEST(RanksHere, CountsWhatTheDriverLists) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("dsj-ranks-here-" + std::to_string(getpid()));
  EXPECT_EQ(processors(root).gpus, 0);
  fs::create_directories(root / "proc/driver/nvidia/gpus/0000:01:00.0");
  fs::create_directories(root / "proc/driver/nvidia/gpus/0000:02:00.0");
  EXPECT_EQ(processors(root).gpus, 2);
  EXPECT_GE(processors(root).cpus, 1);
  fs::remove_all(root);
}

}  // namespace
}  // namespace dsj::jobspec
