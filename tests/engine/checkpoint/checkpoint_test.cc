#include <gtest/gtest.h>

#include <filesystem>

#include "common/files/posix_files.h"
#include "tests/engine/checkpoint/support.h"

namespace dsj::checkpoint {
namespace {

class Checkpoint : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(root_); }
  void TearDown() override { std::filesystem::remove_all(root_); }
  const std::string root_ = testing::TempDir() + "dsj_checkpoint_test";
  const std::string dir_ = root_ + "/out/checkpoints";
  PosixFiles files_;
  const ModelWorld model_ = ModelWorld::make();
};

TEST_F(Checkpoint, WrittenByTwoReadByAnyWorldSize) {
  const auto saved = model_.save(files_, {.checkpoints_dir = dir_, .step = 5, .world = 2});
  ASSERT_TRUE(saved) << saved.error().to_string();
  EXPECT_EQ(saved->path, dir_ + "/step-5");
  EXPECT_TRUE(saved->warnings.empty());
  for (const int world : {1, 2, 3, 4, 7}) {
    auto reader = Reader::open(files_, saved->path);
    ASSERT_TRUE(reader) << reader.error().to_string();
    EXPECT_EQ(reader->world(), 2);
    model_.expect_whole(*reader, world);
  }
  auto found = newest(files_, dir_);
  ASSERT_TRUE(found && found->reader);
  EXPECT_EQ(found->reader->step(), 5);
  EXPECT_TRUE(found->reader->verify());
}

}  // namespace
}  // namespace dsj::checkpoint
