#include "job/plan/snapshot.h"

#include <gtest/gtest.h>

#include "job/layout/units.h"
#include "tests/job/plan/example.h"

namespace dsj::plan {
namespace {

FitInput snapshot_example(int stage, int world) {
  FitInput input;
  input.memory.model = example_model();
  input.memory.config.zero.stage = stage;
  input.memory.config.total_steps = 100;
  input.memory.config.save.every = 50;
  input.memory.world = world;
  input.memory.tokens_per_row = 128;
  input.ranks_per_host = world;
  return input;
}

/// AdamW saves the master and two moments of what a rank holds: 12 bytes for each parameter.
TEST(SnapshotTest, IsTheRanksShareOfACheckpoint) {
  for (const int world : {1, 2, 4}) {
    for (int stage = 0; stage <= 3; ++stage) {
      const FitInput input = snapshot_example(stage, world);
      const int64_t checkpoint = disk_use(input.memory).checkpoint;
      const int64_t bytes = plan_snapshot(input, {}).bytes;
      EXPECT_GE(bytes * world, checkpoint) << "stage " << stage << ", " << world << " ranks";
      EXPECT_LE(bytes * world, checkpoint + checkpoint / 100) << "padding";
    }
  }
}

TEST(SnapshotTest, FrozenParametersAreNotInIt) {
  FitInput input = snapshot_example(2, 2);
  const auto lora =
      layout::resolve_lora(input.memory.model, {.r = 4, .target_pattern = "all-linear"});
  ASSERT_TRUE(lora) << lora.error().to_string();
  input.memory.lora = *lora;
  EXPECT_LT(plan_snapshot(input, {}).bytes * 10, plan_snapshot(snapshot_example(2, 2), {}).bytes);
  EXPECT_GT(plan_snapshot(input, {}).bytes, 0);
}

TEST(SnapshotTest, NoneWithoutASaveThatStepsFollow) {
  using enum dsconfig::Cadence::Kind;
  FitInput input = snapshot_example(2, 2);
  auto& config = input.memory.config;
  const auto bytes = [&] { return plan_snapshot(input, {}).bytes; };
  EXPECT_GT(bytes(), 0);
  config.save.every = 100;
  EXPECT_EQ(bytes(), 0) << "only the last step is saved";
  config.save.kind = Never;
  EXPECT_EQ(bytes(), 0);
  config.save.kind = Epoch;
  config.steps_per_epoch = 100;
  EXPECT_EQ(bytes(), 0);
  config.steps_per_epoch = 99;
  EXPECT_GT(bytes(), 0);
}

TEST(SnapshotTest, FitsToTheByteBesideEverythingElse) {
  const FitInput input = snapshot_example(1, 2);
  const int64_t bytes = plan_snapshot(input, {}).bytes;
  const int64_t peak = memory_model(input.memory).bytes.peak;
  Limits limits;
  EXPECT_TRUE(plan_snapshot(input, limits).fits) << "an unknown limit refuses nothing";
  limits.host = {2 * (peak + bytes), "the host"};
  EXPECT_TRUE(plan_snapshot(input, limits).fits);
  limits.host.bytes = *limits.host.bytes - 1;
  EXPECT_FALSE(plan_snapshot(input, limits).fits);
  EXPECT_TRUE(check_fit(input, limits).empty()) << "the run itself fits: its saves are waited for";
  limits.device = {peak, "--device-memory"};
  limits.host.bytes = 2 * bytes;
  EXPECT_TRUE(plan_snapshot(input, limits).fits) << "the states lie on the device";
}

}  // namespace
}  // namespace dsj::plan
