#include "job/layout/partition.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/job/layout/tiny_qwen2.h"

namespace dsj::layout {
namespace {

std::vector<Parameter> random_parameters(std::mt19937& random) {
  std::vector<Parameter> parameters(1 + random() % 9);
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].name = "p" + std::to_string(i);
    parameters[i].shape = {static_cast<int64_t>(1 + random() % 70),
                           static_cast<int64_t>(1 + random() % 40)};
  }
  return parameters;
}

TEST(Partition, EveryElementHasOneOwner) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const auto parameters = random_parameters(random);
    const int world = 1 + static_cast<int>(random() % 5);
    const FlatLayout flat("f", parameters, world, 1 + static_cast<int64_t>(random() % 3000));
    std::vector<std::vector<int>> owners(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) owners[i].resize(parameters[i].numel(), 0);
    for (int rank = 0; rank < world; ++rank) {
      int64_t last_end = -1;
      for (const Range& range : flat.ranges(rank)) {
        EXPECT_EQ(range.flat_offset, flat.slots()[range.slot].offset + range.offset);
        EXPECT_GE(range.shard_offset, 0);
        EXPECT_LE(range.shard_offset + range.numel, flat.shard_numel());
        EXPECT_GT(range.flat_offset, last_end);
        last_end = range.flat_offset + range.numel - 1;
        for (int64_t k = 0; k < range.numel; ++k) ++owners[range.slot][range.offset + k];
      }
    }
    for (const auto& counts : owners) {
      EXPECT_TRUE(std::ranges::all_of(counts, [](int n) { return n == 1; }));
    }
  }
}

TEST(Partition, ChunksTileTheFlatAndKeepTheLimit) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const int world = 1 + static_cast<int>(random() % 5);
    const int64_t limit = 1 + static_cast<int64_t>(random() % 5000);
    const FlatLayout flat("f", random_parameters(random), world, limit);
    int64_t end = 0, shard_end = 0, padding = 0;
    for (const Chunk& chunk : flat.chunks()) {
      EXPECT_EQ(chunk.offset, end);
      EXPECT_EQ(chunk.shard_offset, shard_end);
      EXPECT_EQ(chunk.slice * world, chunk.numel);
      EXPECT_EQ(chunk.numel % (world * kAlign), 0);
      EXPECT_LE(chunk.numel, std::max(limit, world * kAlign));
      end += chunk.numel;
      shard_end += chunk.slice;
    }
    for (const Gap& gap : flat.gaps()) padding += gap.numel;
    EXPECT_EQ(end, flat.numel());
    EXPECT_EQ(flat.parameter_numel() + padding, flat.numel());
  }
}

TEST(Partition, HalfTheBucketIsTwiceTheChunks) {
  const std::vector<Parameter> parameters{{"w", {1024, 64}}};
  EXPECT_EQ(FlatLayout("f", parameters, 2, 1 << 20).chunks().size(), 1u);
  EXPECT_EQ(FlatLayout("f", parameters, 2, 16384).chunks().size(), 4u);
  EXPECT_EQ(FlatLayout("f", parameters, 2, 8192).chunks().size(), 8u);
}

TEST(FlatPlan, SmallParametersPersistUpToTheModelLimit) {
  const auto units = units_of(tiny_qwen2(false, 3));
  const auto none = plan_flats(units, {.shard_world = 2});
  EXPECT_EQ(none.persisted, -1);
  EXPECT_EQ(none.flats.size(), units.size());
  const auto some = plan_flats(units, {.shard_world = 2, .persistence_threshold = 32});
  ASSERT_GE(some.persisted, 0);
  // Per layer: two norms of 32, biases of 32, 16, 16; the final norm.
  EXPECT_EQ(some.flats[some.persisted].parameter_numel(), 3 * (32 + 32 + 32 + 16 + 16) + 32);
  const auto capped = plan_flats(
      units, {.shard_world = 2, .persistence_threshold = 32, .model_persistence_threshold = 64});
  EXPECT_EQ(capped.flats[capped.persisted].parameter_numel(), 64);
  const auto all = plan_flats(units, {.shard_world = 2, .persistence_threshold = 100000});
  EXPECT_EQ(all.flats.size(), 1u);
  EXPECT_EQ(all.flats[0].parameter_numel(), total_numel(units));
}

TEST(FlatPlan, SomeParametersHaveFlatsOfTheirOwn) {
  const auto units = units_of(tiny_qwen2(false, 3));
  const auto alone = [](const Parameter& one) {
    return one.name.find("proj.weight") < one.name.size();
  };
  for (const int64_t threshold : {0, 100000}) {
    const auto plan =
        plan_flats(units, {.shard_world = 2, .persistence_threshold = threshold, .alone = alone});
    ASSERT_GE(plan.persisted, 0);
    for (size_t unit = 0; unit < units.size(); ++unit) {
      for (size_t i = 0; i < units[unit].parameters.size(); ++i) {
        const auto& parameter = units[unit].parameters[i];
        const auto& place = plan.places[unit][i];
        const auto& flat = plan.flats[place.flat];
        EXPECT_EQ(flat.slots()[place.slot].name, parameter.name);
        const bool layer = unit > 0 && unit + 1 < units.size();
        const bool kept = !alone(parameter) && (layer || threshold > 0);
        EXPECT_EQ(plan.is_persisted(place.flat), kept) << parameter.name;
        for (const auto& slot : flat.slots())
          EXPECT_EQ(alone(Parameter{slot.name, slot.shape}), alone(parameter)) << slot.name;
      }
    }
  }
}

/// What travels as codes: no block of a matrix is cut between two ranks, frozen or not.
TEST(FlatPlan, VectorsStayWholeAndMatricesBeginABlock) {
  auto units = units_of(tiny_qwen2(false, 3));
  for (auto& parameter : units[2].parameters) parameter.frozen = true;
  const auto plan =
      plan_flats(units, {.shard_world = 3,
                         .chunk_limit = 5000,
                         .whole = [](const Parameter& one) { return one.shape.size() < 2; },
                         .align = 512,
                         .frozen_align = 512});
  ASSERT_GE(plan.persisted, 0);
  ASSERT_GE(plan.persisted_frozen, 0);
  for (size_t f = 0; f < plan.flats.size(); ++f) {
    const bool persisted = plan.is_persisted(static_cast<int>(f));
    for (const auto& slot : plan.flats[f].slots()) {
      EXPECT_EQ(slot.shape.size() < 2, persisted) << slot.name;
      EXPECT_EQ(slot.offset % 512, 0) << slot.name;
    }
    for (const auto& chunk : plan.flats[f].chunks()) EXPECT_EQ(chunk.slice % 512, 0);
  }
}

TEST(FlatPlan, FusedNeighboursAreContiguous) {
  const auto units = units_of(tiny_qwen2(true, 3));
  const auto plan = plan_flats(units, {.shard_world = 2});
  const auto& layer = plan.flats[1].slots();
  ASSERT_EQ(layer[1].name, "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(layer[2].offset, layer[1].offset + layer[1].numel);
  EXPECT_EQ(layer[3].offset, layer[2].offset + layer[2].numel);
}

}  // namespace
}  // namespace dsj::layout
