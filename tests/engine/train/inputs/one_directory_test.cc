// Nodes without a shared volume are told before the first step: drawn ranks on drawn directories.
#include "engine/train/inputs/one_directory.h"

#include <gmock/gmock.h>

#include <random>

#include "common/files/memory_files.h"
#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

using testing::HasSubstr;

/// Which rank has which volume. Nothing is left on any of them.
void expect_first_stranger(const std::vector<size_t>& volume_of_rank) {
  const int world = static_cast<int>(volume_of_rank.size());
  std::vector<MemoryFiles> volumes(world);
  for (MemoryFiles& volume : volumes) ASSERT_TRUE(volume.make_dir("/out"));
  std::vector<Status> said(world);
  testing_support::run_ranks(world, [&](comm::Collectives& collectives, memory::Ledger&) {
    const int rank = collectives.rank();
    said[rank] = check_one_directory(volumes[volume_of_rank[rank]], "/out", collectives, at::kCPU);
  });
  const auto stranger = std::ranges::find_if(
      volume_of_rank, [&](size_t volume) { return volume != volume_of_rank[0]; });
  for (const Status& one : said) {
    ASSERT_EQ(one.has_value(), stranger == volume_of_rank.end());
    if (one) continue;
    EXPECT_EQ(one.error().kind, ErrorKind::BadInput);
    EXPECT_EQ(one.error().where, "training.outputDir");
    EXPECT_THAT(one.error().message,
                HasSubstr("rank " + std::to_string(stranger - volume_of_rank.begin()) + " on "));
  }
  for (MemoryFiles& volume : volumes) EXPECT_TRUE(volume.list_dir("/out")->empty());
}

TEST(OneDirectory, TheFirstRankOfAnotherDirectoryIsNamed) {
  std::mt19937 draw(1);
  for (const int world : {2, 3, 4}) {
    expect_first_stranger(std::vector<size_t>(world, 0));
    for (int i = 0; i < 4; ++i) {
      std::vector<size_t> volumes(world);
      for (size_t& volume : volumes) volume = draw() % 2;
      SCOPED_TRACE(testing::PrintToString(volumes));
      expect_first_stranger(volumes);
    }
  }
}

}  // namespace
}  // namespace dsj::train
