#include "job/plan/rank_groups.h"

#include <gtest/gtest.h>

#include "job/plan/host_wire.h"
#include "job/plan/zero_plan.h"
#include "tests/job/plan/example.h"

namespace dsj::plan {
namespace {

dsconfig::ResolvedConfig groups_config(int stage, int64_t hpz, int64_t mics) {
  dsconfig::ResolvedConfig config;
  config.micro_batch_size = 1;
  config.gradient_accumulation_steps = 2;
  config.zero.stage = stage;
  config.zero.param_persistence_threshold = 0;
  config.zero.max_reuse_distance = 0;
  config.zero.hpz_partition_size = hpz;
  config.zero.mics_shard_size = mics;
  return config;
}

TEST(RankGroupsPlan, SizesFollowTheKeysAtStageThree) {
  const RankGroups hpz = rank_groups(groups_config(3, 4, -1), 8);
  EXPECT_EQ(hpz.shards, 8);
  EXPECT_EQ(hpz.near, 4);
  EXPECT_TRUE(hpz.splits());
  const RankGroups mics = rank_groups(groups_config(3, 1, 4), 8);
  EXPECT_EQ(mics.shards, 4);
  EXPECT_EQ(mics.replicas(), 2);
  EXPECT_EQ(mics.near, 0);
  for (const auto& config : {groups_config(3, 8, -1), groups_config(3, 1, 8),
                             groups_config(3, 0, 0), groups_config(2, 4, 4)})
    EXPECT_FALSE(rank_groups(config, 8).splits()) << "one group of all ranks";
  EXPECT_EQ(effective_stage(groups_config(3, 1, 1), 8).number, 0) << "every rank keeps all";
  EXPECT_FALSE(rank_groups(groups_config(3, 1, 1), 8).splits());
  auto offloaded = groups_config(3, 1, 1);
  offloaded.offload.param.device = dsconfig::OffloadDevice::Cpu;
  EXPECT_EQ(rank_groups(offloaded, 8).replicas(), 8);
}

WireCount wire_of_groups(const dsconfig::ResolvedConfig& config, int world) {
  return memory_model(
             {.model = example_model(), .config = config, .world = world, .tokens_per_row = 64})
      .wire;
}

/// Two hosts of four ranks, groups of a host's ranks.
TEST(RankGroupsPlan, BetweenHostsHpzGathersForwardOnly) {
  const auto stage3 = groups_config(3, 1, -1), hpz = groups_config(3, 4, -1);
  const WireCount plain = wire_of_groups(stage3, 8), wire = wire_of_groups(hpz, 8);
  const HostWire before = bytes_between_hosts(plain, 2, 4, rank_groups(stage3, 8)),
                 after = bytes_between_hosts(wire, 2, 4, rank_groups(hpz, 8));
  EXPECT_EQ(after.gradients, before.gradients);
  // Of all gathers of two micro-steps only the first of each flat leaves the host: P (hosts-1)/hosts.
  int64_t padded = 0;
  for (const auto& flat : plan_flats(layout::units_of(example_model()), hpz, 8).flats)
    padded += flat.numel();
  EXPECT_EQ(after.parameters, 4 * padded / 2);
  EXPECT_GT(before.parameters, 2 * after.parameters);
}

TEST(RankGroupsPlan, BetweenHostsMicsSendsTheShardsSumOnly) {
  const auto mics = groups_config(3, 1, 4);
  const WireCount wire = wire_of_groups(mics, 8);
  const HostWire sent = bytes_between_hosts(wire, 2, 4, rank_groups(mics, 8));
  EXPECT_EQ(sent.parameters, 0);
  int64_t padded = 0;
  for (const auto& flat : plan_flats(layout::units_of(example_model()), mics, 8).flats)
    padded += flat.numel();
  // Each of a host's four ranks sends its quarter once: 2 n (W-1)/W of n with W = 2.
  EXPECT_EQ(sent.gradients, 4 * padded);
  // A group over both hosts gathers in two levels, and there are no replicas.
  const auto wide = groups_config(3, 1, 8);
  const auto plain = groups_config(3, 1, -1);
  EXPECT_EQ(bytes_between_hosts(wire_of_groups(wide, 8), 2, 4, rank_groups(wide, 8)).parameters,
            bytes_between_hosts(wire_of_groups(plain, 8), 2, 4, rank_groups(plain, 8)).parameters);
}

/// Two hosts of four ranks, groups of a host's ranks: of the sums that a host's four ranks form, each
/// rank sends the other host's part of its own place, in 4 bits and a scale for 512 numbers.
TEST(RankGroupsPlan, BetweenHostsCodesLeaveAGroupOnce) {
  auto config = groups_config(3, 4, -1);
  config.gradient_accumulation_steps = 1;
  const auto exact = wire_of_groups(config, 8);
  config.zero.quantized_gradients = true;
  EXPECT_TRUE(rank_groups(config, 8).rails);
  const WireCount wire = wire_of_groups(config, 8);
  int64_t codes = 0, vectors = 0;
  const auto plan = plan_flats(layout::units_of(example_model()), config, 8);
  for (int i = 0; i < static_cast<int>(plan.flats.size()); ++i) {
    const int64_t shard = plan.flats[i].shard_numel();
    if (plan.is_persisted(i))
      vectors += 4 * plan.flats[i].numel();
    else
      codes += (shard / 2 + 4 * (shard / 512) + 7) / 8 * 8;  // whole words
  }
  EXPECT_EQ(wire.gradient_bytes_over_groups, codes) << "one rank's, to one other group";
  const HostWire sent = bytes_between_hosts(wire, 2, 4, rank_groups(config, 8));
  EXPECT_EQ(sent.gradients, 4 * codes + vectors / 2);
  // Without groups each rank's own gradient goes to the other host, not the sum of four.
  config.zero.hpz_partition_size = 1;
  const WireCount one_hop = wire_of_groups(config, 8);
  EXPECT_EQ(one_hop.exchanged_gradient_bytes, 7 * codes);
  EXPECT_EQ(one_hop.gradient_bytes_over_groups, 0);
  EXPECT_LT(one_hop.gradient_bytes, exact.gradient_bytes / 4);
}

TEST(RankGroupsPlan, MemoryIsAGroupsShare) {
  const auto bytes = [](const dsconfig::ResolvedConfig& config, int world) {
    return memory_model(
               {.model = example_model(), .config = config, .world = world, .tokens_per_row = 64})
        .bytes;
  };
  const auto plain = bytes(groups_config(3, 1, -1), 8), hpz = bytes(groups_config(3, 4, -1), 8),
             mics = bytes(groups_config(3, 1, 4), 8);
  int64_t padded = 0;
  for (const auto& flat :
       plan_flats(layout::units_of(example_model()), groups_config(3, 4, -1), 8).flats)
    padded += flat.numel();
  EXPECT_EQ(hpz.parameters - plain.parameters, 4 * padded / 4) << "a second copy, in fp32";
  EXPECT_EQ(hpz.optimizer, plain.optimizer);
  EXPECT_EQ(mics.optimizer, bytes(groups_config(3, 1, -1), 4).optimizer) << "as of 4 ranks";
}

}  // namespace
}  // namespace dsj::plan
