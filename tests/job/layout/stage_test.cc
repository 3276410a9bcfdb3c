#include "job/layout/stage.h"

#include <gtest/gtest.h>

namespace dsj::layout {
namespace {

TEST(StageTest, TheTableStandsByItsNumbers) {
  for (int number = 0; number < static_cast<int>(kStages.size()); ++number)
    EXPECT_EQ(kStages[number].number, number);
}

/// Each stage shards one thing more: optimizer, gradient, parameters.
TEST(StageTest, EachStageShardsOneThingMore) {
  for (const Stage& stage : kStages) {
    EXPECT_EQ(stage.optimizer == Kept::Shard, stage.number >= 1);
    EXPECT_EQ(stage.gradient == Kept::Shard, stage.number >= 2);
    EXPECT_EQ(stage.parameters == Kept::Shard, stage.number >= 3);
  }
}

/// When ranks exchange follows from what they keep.
TEST(StageTest, GathersAndReductionsFitWhatIsKept) {
  for (const Stage& stage : kStages) {
    EXPECT_EQ(stage.gathered == Gathered::Never, !stage.shards_update()) << stage.number;
    EXPECT_EQ(stage.gathered == Gathered::AroundUse, stage.shards_parameters()) << stage.number;
    EXPECT_EQ(stage.reduces_every_micro_step(), stage.gradient == Kept::Shard) << stage.number;
  }
}

TEST(StageTest, APersistedFlatIsTreatedAsAtStageTwo) {
  EXPECT_EQ(stage_of_flat(kStages[3], true).number, 2);
  EXPECT_EQ(stage_of_flat(kStages[3], false).number, 3);
  for (int number = 0; number <= 2; ++number)
    EXPECT_EQ(stage_of_flat(kStages[number], true).number, number);
}

}  // namespace
}  // namespace dsj::layout
