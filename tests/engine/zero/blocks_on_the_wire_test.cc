// Parameters and gradients that travel as codes, between ranks: the values against a slow twin of the
// formula, for drawn flats, worlds and groups.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/zero/flat/block_gather.h"
#include "engine/zero/flat/block_reduction.h"
#include "job/wire_blocks.h"
#include "tests/engine/support/coded.h"
#include "tests/engine/support/ranks.h"

namespace dsj::zero {
namespace {

using testing_support::coded;

/// A flat of matrices, cut for `world` ranks by whole blocks.
layout::FlatLayout drawn_layout(std::mt19937& random, int world) {
  std::vector<layout::Parameter> parameters;
  const int count = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < count; ++i) {
    const int64_t out = 1 + static_cast<int64_t>(random() % 40),
                  in = 1 + static_cast<int64_t>(random() % 90);
    parameters.push_back({.name = "w" + std::to_string(i), .shape = {out, in}});
  }
  const int64_t limit = random() % 2 != 0 ? 3000 : 1 << 30;
  return {"layer", parameters, world, limit, wire::kWireBlock};
}

/// [numel], zeros between the parameters.
at::Tensor drawn_values(const layout::FlatLayout& layout, unsigned seed) {
  at::manual_seed(seed);
  const at::Tensor values = at::randn({layout.numel()});
  for (const auto& gap : layout.gaps()) values.narrow(0, gap.offset, gap.numel).zero_();
  return values;
}

at::Tensor shard_of(const layout::FlatLayout& layout, const at::Tensor& whole, int rank) {
  const at::Tensor shard = at::empty({layout.shard_numel()}, whole.options());
  for (const auto& chunk : layout.chunks())
    shard.narrow(0, chunk.shard_offset, chunk.slice)
        .copy_(whole.narrow(0, chunk.offset + rank * chunk.slice, chunk.slice));
  return shard;
}

TEST(BlocksOnTheWire, AGatherGivesEveryRankTheCodedParameters) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    const int world = 1 + static_cast<int>(random() % 4);
    const layout::FlatLayout layout = drawn_layout(random, world);
    const at::Tensor values = drawn_values(layout, seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(world) + " ranks");
    testing_support::run_ranks(world, [&](comm::Collectives& group, memory::Ledger&) {
      const at::Tensor shard = shard_of(layout, values, group.rank());
      BlockGather gather(layout);
      for (int way = 0; way < 3; ++way) {
        const at::Tensor whole = at::full({layout.numel()}, NAN);
        const comm::Label label{comm::Traffic::Parameters, "layer"};
        if (way == 0) gather.start(group, gather.message_of(shard), label);
        if (way == 1) gather.start_of_shard(group, shard, label);
        if (way == 2) {
          for (const auto& chunk : layout.chunks())
            whole.narrow(0, chunk.offset + group.rank() * chunk.slice, chunk.slice)
                .copy_(shard.narrow(0, chunk.shard_offset, chunk.slice));
          gather.start_of_slices(group, whole, label);
        }
        EXPECT_TRUE(gather.in_flight());
        gather.finish(whole);
        // By parameter: the codes do not depend on who owns what.
        for (const auto& slot : layout.slots())
          EXPECT_TRUE(at::equal(whole.narrow(0, slot.offset, slot.numel),
                                coded(values.narrow(0, slot.offset, slot.numel), 8)))
              << slot.name << ", way " << way;
      }
    });
  }
}

TEST(BlocksOnTheWire, AReductionIsTheSumOfCodedGradients) {
  for (unsigned seed = 0; seed < 16; ++seed) {
    std::mt19937 random(seed);
    const int near = 1 + static_cast<int>(random() % 3),
              owners = 1 + static_cast<int>(random() % 2);
    const int world = std::max(2, near * owners);
    const bool hops = near > 1 && owners > 1;
    const layout::FlatLayout layout = drawn_layout(random, world);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(world) + " ranks" +
                 (hops ? " in groups of " + std::to_string(near) : ""));
    std::vector<at::Tensor> gradients;  // drawn here: the ranks share one generator
    for (int rank = 0; rank < world; ++rank)
      gradients.push_back(drawn_values(layout, 100 * seed + static_cast<unsigned>(rank)));
    at::Tensor expected;
    const auto add = [](at::Tensor& sum, const at::Tensor& term) {
      sum = sum.defined() ? sum + term : term;
    };
    for (int owner = 0; owner < (hops ? owners : 1); ++owner) {
      at::Tensor group_sum;
      const int ranks = hops ? near : world;
      for (int place = 0; place < ranks; ++place)
        add(group_sum, coded(gradients[static_cast<size_t>(owner * ranks + place)], 4));
      add(expected, hops ? coded(group_sum, 4) : group_sum);
    }
    testing_support::run_ranks(
        world,
        [&](comm::Collectives& all, memory::Ledger&) {
          auto run = RunGroups::make(
              all, {.world = world, .shards = world, .near = hops ? near : 0, .rails = hops});
          ASSERT_TRUE(run) << run.error().to_string();
          const at::Tensor whole = gradients[static_cast<size_t>(all.rank())],
                           out = at::empty({layout.shard_numel()});
          BlockReduction reduction(layout, whole, run->groups(),
                                   {comm::Traffic::Gradients, "layer"});
          whole.fill_(NAN);  // it has been read
          reduction.finish(out);
          EXPECT_TRUE(at::equal(out, shard_of(layout, expected, all.rank())));
          all.barrier({})->wait();
          run->shutdown();
        },
        "auto", true);
  }
}

TEST(BlocksOnTheWire, OneBadGradientSpoilsItsBlock) {
  testing_support::run_ranks(2, [&](comm::Collectives& all, memory::Ledger&) {
    const layout::FlatLayout layout("layer", {{.name = "w", .shape = {64, 64}}}, 2, 1 << 30,
                                    wire::kWireBlock);
    const at::Tensor whole = at::ones({layout.numel()}), out = at::empty({layout.shard_numel()});
    if (all.rank() == 1) whole[5] = INFINITY;
    const Groups groups(all);
    BlockReduction reduction(layout, whole, groups, {comm::Traffic::Gradients, "layer"});
    reduction.finish(out);
    EXPECT_EQ(out.isnan().sum().item<int64_t>(), all.rank() == 0 ? wire::kWireBlock : 0);
  });
}

}  // namespace
}  // namespace dsj::zero
