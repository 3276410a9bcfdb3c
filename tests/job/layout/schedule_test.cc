#include "job/layout/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/job/layout/tiny_qwen2.h"

namespace dsj::layout {
namespace {

using Kind = Action::Kind;

struct Walked {
  int64_t peak = 0;
  int64_t gathers = 0;
};

/// Replays a schedule against a model of the storage: every use finds its flats gathered, nothing
/// is gathered twice, everything is released at the end, every flat is reduced once per micro-step.
Walked replay(const std::vector<UnitSpec>& units, const FlatPlan& plan, const Schedule& schedule,
              int64_t micro_steps) {
  std::set<int> live;
  std::vector<int> reduced(plan.flats.size(), 0);
  Walked out;
  int64_t now = 0;
  for (const Action& action : schedule.actions) {
    switch (action.kind) {
      case Kind::Gather:
        EXPECT_TRUE(live.insert(action.flat).second);
        now += plan.flats[action.flat].numel();
        ++out.gathers;
        break;
      case Kind::Release:
        EXPECT_EQ(live.erase(action.flat), 1u);
        now -= plan.flats[action.flat].numel();
        break;
      case Kind::Forward:
      case Kind::Turn:
      case Kind::Backward:
        if (action.unit == 0 && action.kind == Kind::Backward) break;
        EXPECT_TRUE(live.contains(plan.unit_flat[action.unit])) << action.unit;
        EXPECT_TRUE(!units[action.unit].uses_embedding || live.contains(plan.unit_flat[0]));
        break;
      case Kind::Reduce:
        ++reduced[action.flat];
        break;
    }
    out.peak = std::max(out.peak, now);
  }
  EXPECT_TRUE(live.empty());
  for (const int count : reduced) EXPECT_EQ(count, micro_steps);
  return out;
}

TEST(Schedule, HoldsForEveryLimit) {
  for (const bool tied : {false, true}) {
    const auto units = units_of(tiny_qwen2(tied, 4));
    const auto plan = plan_flats(units, {.shard_world = 2});
    for (const int64_t prefetch : {0, 1, 9000, 100000}) {
      for (const int64_t live : {1, 10000, 30000, 1000000}) {
        for (const int64_t reuse : {0, 10000, 1000000}) {
          const auto schedule = make_schedule(units, plan, {true, prefetch, live, reuse}, 3);
          const auto walked = replay(units, plan, schedule, 3);
          EXPECT_EQ(walked.peak, schedule.peak_live);
          EXPECT_EQ(walked.gathers, schedule.gathers);
        }
      }
    }
  }
}

/// The oracle walks every micro-step.
TEST(Schedule, RepeatedMicroStepsAreThoseOfTheWholeWalk) {
  std::mt19937_64 random(32);
  const auto draw = [&](int64_t from, int64_t to) {
    return std::uniform_int_distribution<int64_t>(from, to)(random);
  };
  for (int i = 0; i < 3000; ++i) {
    const auto units = units_of(tiny_qwen2(draw(0, 1) == 1, static_cast<int>(draw(1, 5))));
    const auto plan = plan_flats(units, {.shard_world = static_cast<int>(draw(1, 3))});
    const ScheduleLimits limits{.sharded_parameters = draw(0, 9) > 0,
                                .prefetch = draw(0, 3) * draw(0, 40'000),
                                .max_live = draw(0, 3) * draw(1, 40'000),
                                .max_reuse_distance = draw(0, 3) * draw(0, 40'000)};
    const int64_t micro_steps = draw(1, 25);
    const Schedule fast = make_schedule(units, plan, limits, micro_steps);
    const Schedule slow = walk_schedule(units, plan, limits, micro_steps);
    ASSERT_TRUE(std::ranges::equal(fast.actions, slow.actions))
        << "draw " << i << ", micro-steps " << micro_steps << ", prefetch " << limits.prefetch
        << ", live " << limits.max_live << ", reuse " << limits.max_reuse_distance;
    ASSERT_EQ(fast.actions.size(), slow.actions.size());
    ASSERT_EQ(fast.gathers, slow.gathers);
    ASSERT_EQ(fast.peak_live, slow.peak_live);
    ASSERT_EQ(fast.actions.back(), slow.actions.back());
  }
}

/// Units before the layers follow the head in the list. Their weights are gathered for forward; a
/// table is not gathered for backward.
TEST(Schedule, UnitsBeforeTheLayersRunThere) {
  auto units = units_of(tiny_qwen2(true, 2));
  const int head = head_of(units);
  units.push_back({"table", {{"table", {256, 8}}}});
  units.push_back({"inputs", {{"inputs", {8, 32}}}});
  for (const int more : {1, 2}) units[head + more].before_layers = true;
  units[head + 1].only_rows = true;
  EXPECT_EQ(head_of(units), head);
  const FlatPlan plan = plan_flats(units, {.shard_world = 2});
  const ScheduleLimits limits{true, 0, 0, 0};
  const auto visits = [](const Schedule& schedule, Kind kind) {
    std::vector<int> order;
    for (const Action& action : schedule.actions)
      if (action.kind == kind) order.push_back(action.unit);
    return order;
  };
  Schedule schedule = make_schedule(units, plan, limits, 1);
  EXPECT_EQ(visits(schedule, Kind::Forward), (std::vector{0, head + 1, head + 2, 1, 2}));
  EXPECT_EQ(visits(schedule, Kind::Turn), std::vector{head});
  EXPECT_EQ(visits(schedule, Kind::Backward), (std::vector{2, 1, head + 2, head + 1, 0}));
  int64_t gathers[2] = {};
  for (const Action& action : schedule.actions)
    for (const int more : {1, 2})
      if (action.kind == Kind::Gather && action.flat == plan.unit_flat[head + more])
        ++gathers[more - 1];
  EXPECT_EQ(gathers[0], 1);
  EXPECT_EQ(gathers[1], 2);

  // Backward goes down to the embedding if one of them is trained, whatever else is.
  for (const int trained : {head + 1, head + 2, 2, 0}) {
    for (size_t unit = 0; unit < units.size(); ++unit)
      for (Parameter& parameter : units[unit].parameters)
        parameter.frozen = static_cast<int>(unit) != trained;
    EXPECT_EQ(lowest_trainable(units), trained == 2 ? 2 : 0) << trained;
  }
}

TEST(Schedule, NoPrefetchNoReuseGathersTwicePerLayerAndHoldsOne) {
  const auto units = units_of(tiny_qwen2(false, 4));
  const auto plan = plan_flats(units, {.shard_world = 2});
  const auto schedule = make_schedule(units, plan, {true, 0, 1'000'000, 0}, 1);
  // Embedding and head once, four layers forward and backward. The last layer is not kept: its
  // backward comes after the head.
  EXPECT_EQ(schedule.gathers, 2 + 4 * 2);
  int64_t largest = 0;
  for (const auto& flat : plan.flats) largest = std::max(largest, flat.numel());
  EXPECT_EQ(schedule.peak_live, largest);
}

TEST(Schedule, ForwardAloneLeavesNothingGathered) {
  for (const bool tied : {false, true}) {
    const auto units = units_of(tiny_qwen2(tied, 4));
    const auto plan = plan_flats(units, {.shard_world = 2});
    for (const int64_t live : {1, 10000, 1000000}) {
      const auto schedule = make_forward_schedule(units, plan, {true, 9000, live, 1'000'000});
      replay(units, plan, schedule, /*micro_steps=*/0);  // nothing is reduced
      std::vector<int> visits;
      for (const Action& action : schedule.actions)
        if (action.kind == Kind::Forward || action.kind == Kind::Turn)
          visits.push_back(action.unit);
      EXPECT_EQ(visits, (std::vector<int>{0, 1, 2, 3, 4, 5}));
    }
    const auto whole = make_forward_schedule(units, plan, {.sharded_parameters = false});
    EXPECT_EQ(whole.actions.size(), 6u) << "nothing to gather";
  }
}

TEST(Schedule, PrefetchTakesTheNextUnitWhole) {
  const auto units = units_of(tiny_qwen2(false, 4));
  const auto plan = plan_flats(units, {.shard_world = 2});
  const int64_t layer = plan.flats[1].numel();
  const auto one = make_schedule(units, plan, {true, 1, 1'000'000, 0}, 1);
  const auto two = make_schedule(units, plan, {true, layer + 1, 1'000'000, 0}, 1);
  EXPECT_EQ(one.peak_live, 2 * layer);
  EXPECT_EQ(two.peak_live, 3 * layer);
}

TEST(Schedule, EverythingKeptWhenReuseAndLiveAllow) {
  const auto units = units_of(tiny_qwen2(false, 4));
  const auto plan = plan_flats(units, {.shard_world = 2});
  const auto schedule = make_schedule(units, plan, {.sharded_parameters = true}, 4);
  EXPECT_EQ(schedule.gathers, static_cast<int64_t>(plan.flats.size()));
}

TEST(Schedule, TiedHeadReducesWithTheEmbedding) {
  const auto units = units_of(tiny_qwen2(true, 4));
  const auto plan = plan_flats(units, {.shard_world = 2});
  const auto schedule = make_schedule(units, plan, {}, 1);
  std::vector<int> order;
  for (const Action& action : schedule.actions) {
    if (action.kind == Kind::Reduce) order.push_back(action.unit);
  }
  EXPECT_EQ(order, (std::vector<int>{5, 4, 3, 2, 1, 0}));
}

TEST(Schedule, AGradientIsFetchedWhileTheOneBeforeItIsComputed) {
  const auto units = units_of(tiny_qwen2(false, 4));
  const FlatPlan plan = plan_flats(units, {});
  const std::vector<int> order = reductions(make_schedule(units, plan, {}, 3));
  ASSERT_EQ(order.size(), plan.flats.size()) << "of one micro-step";
  EXPECT_EQ(order.front(), plan.unit_flat.back()) << "the head";
  EXPECT_EQ(order.back(), plan.unit_flat[0]);
  for (size_t i = 0; i + 2 < order.size(); ++i)
    for (const bool last : {false, true})
      EXPECT_EQ(flat_to_fetch(order, order[i], last), order[i + 2]);
  EXPECT_EQ(flat_to_fetch(order, order.back(), false), order[1]) << "of the next micro-step";
  EXPECT_EQ(flat_to_fetch(order, order.back(), true), -1);
  EXPECT_EQ(flat_to_fetch({}, 0, false), -1) << "nobody said in which order";
}

}  // namespace
}  // namespace dsj::layout
