// hpZ and MiCS train as stage 3 does, cost what the plan says, and send between groups what they
// promise. Expected values are plain stage 3's, which stages_test.cc holds against libtorch.
#include <gtest/gtest.h>

#include <random>

#include "tests/engine/train/planned_step.h"

namespace dsj::train {
namespace {

using dsconfig::Precision;

/// A run of stage 3 with drawn sizes, and a group size that divides its ranks.
struct DrawnGroups {
  SmallRun run;
  int64_t group = 1;
  std::string text() const {
    return run.model + ", " + std::to_string(run.world) + " ranks in groups of " +
           std::to_string(group) + ", " + std::to_string(run.config.gradient_accumulation_steps) +
           " micro-steps";
  }
};

DrawnGroups draw_groups(unsigned seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](auto list) {
    return *(list.begin() + static_cast<int64_t>(random() % list.size()));
  };
  using Sizes = std::initializer_list<int64_t>;
  DrawnGroups drawn;
  SmallRun& run = drawn.run;
  run.world = static_cast<int>(one_of(Sizes{2, 3, 4, 6}));
  std::vector<int64_t> groups;
  for (int64_t n = 1; n <= run.world; ++n)
    if (run.world % n == 0) groups.push_back(n);
  drawn.group = one_of(groups);
  run.model = random() % 2 != 0 ? "tiny-qwen2" : "tiny-qwen2-tied";
  run.steps = 3;
  run.recompute = random() % 2 != 0;
  run.config = small_config(3, one_of(Sizes{1, 2}), one_of(Sizes{1, 2, 3}));
  run.config.zero.overlap_comm = random() % 2 != 0;
  run.config.zero.reduce_bucket_size = one_of(Sizes{3000, 500'000'000});
  run.config.zero.param_persistence_threshold = one_of(Sizes{0, 64});
  run.config.zero.max_reuse_distance = one_of(Sizes{0, 1'000'000'000});
  run.config.zero.prefetch_bucket_size = one_of(Sizes{0, 20'000});
  if (random() % 4 == 0) run.lora = LoraArgs{.r = 4};
  if (random() % 4 == 0) run.config.offload.param.device = dsconfig::OffloadDevice::Cpu;
  return drawn;
}

void expect_same_bits(const RunResult& got, const RunResult& want) {
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.norms, want.norms);
  ASSERT_EQ(got.weights.size(), want.weights.size());
  for (const auto& [name, value] : want.weights)
    EXPECT_TRUE(got.weights.at(name).equal(value)) << name;
}

TEST(RankGroups, HpzIsStageThreeToTheBit) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    DrawnGroups drawn = draw_groups(seed);
    if (seed % 4 == 3) drawn.run.config.precision = Precision::Bf16;
    SCOPED_TRACE(drawn.text() + ", seed " + std::to_string(seed));
    const RunResult plain = run_small(drawn.run);
    drawn.run.config.zero.hpz_partition_size = drawn.group;
    expect_same_bits(run_small(drawn.run), plain);
  }
}

/// Sums within a group come first, then the groups': the terms are plain stage 3's, in another order.
TEST(RankGroups, MicsIsStageThreeWithinTheOrderOfSums) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    DrawnGroups drawn = draw_groups(seed);
    SCOPED_TRACE(drawn.text() + ", seed " + std::to_string(seed));
    const RunResult plain = run_small(drawn.run);
    drawn.run.config.zero.mics_shard_size = drawn.group;
    const RunResult mics = run_small(drawn.run);
    if (drawn.group == drawn.run.world) {
      expect_same_bits(mics, plain);
      continue;
    }
    expect_near_steps(mics, plain, 1e-6);
    for (const auto& [name, value] : plain.weights) {
      // A key's bias moves every score of a query alike: its gradient is nothing but rounding, which
      // AdamW makes a full step.
      if (name.ends_with("k_proj.bias")) continue;
      EXPECT_LT((mics.weights.at(name) - value).norm().item<double>(),
                1e-4 * value.norm().item<double>() + 1e-5)
          << name;
    }
  }
}

TEST(RankGroups, MicsOfOneRankIsStageZero) {
  SmallRun run{.world = 3, .config = small_config(3, 1, 2)};
  run.config.zero.mics_shard_size = 1;
  SmallRun whole{.world = 3, .config = small_config(0, 1, 2)};
  expect_same_bits(run_small(run), run_small(whole));
}

TEST(RankGroups, HpzGathersOnceAStepFromAllRanks) {
  for (const bool lora : {false, true}) {
    for (const int64_t group : {2, 3}) {
      SmallRun run{.world = 6, .config = small_config(3, 1, 2)};
      run.config.zero.max_reuse_distance = 0;
      run.config.zero.hpz_partition_size = group;
      if (lora) run.lora = LoraArgs{.r = 4};
      SCOPED_TRACE((lora ? "LoRA, groups of " : "groups of ") + std::to_string(group));
      const PlannedStep m = measure_planned(run);
      expect_planned(m);
      // Two forwards and two backwards; all but the first gather of what changed is the group's.
      EXPECT_EQ(m.world.of(comm::Kind::AllGather).calls, m.flats + 1)
          << "the flats, and the persisted one after the update";
      EXPECT_EQ(m.near.of(comm::Traffic::Parameters).bytes, m.planned.wire.near_parameter_bytes);
      EXPECT_GT(m.near.of(comm::Traffic::Parameters).bytes, 0);
    }
  }
}

TEST(RankGroups, MicsSendsOneSumAStepFromGroupToGroup) {
  for (const int64_t group : {2, 3}) {
    SmallRun run{.world = 6, .config = small_config(3, 1, 2)};
    run.config.zero.mics_shard_size = group;
    const PlannedStep m = measure_planned(run);
    SCOPED_TRACE(group);
    expect_planned(m);
    EXPECT_EQ(m.world.of(comm::Traffic::Parameters).bytes, 0);
    EXPECT_EQ(m.world.of(comm::Traffic::Gradients).bytes, 0);
    EXPECT_EQ(m.replicas.of(comm::Traffic::Gradients).bytes,
              m.planned.wire.gradient_bytes_over_groups);
    EXPECT_EQ(m.replicas.of(comm::Traffic::Gradients).calls, m.flats + 1)
        << "once, not per micro-step";
  }
}

}  // namespace
}  // namespace dsj::train
