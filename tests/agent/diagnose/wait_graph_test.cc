#include "agent/diagnose/wait_graph.h"

#include <gtest/gtest.h>

namespace dsj::agent {
namespace {

using RankList = std::vector<int>;

/// A rank that has begun `last` collectives of the world.
RankLook at(int64_t last, bool inside, int waits_for = -1) {
  return {.known = true,
          .issued = last,
          .ended = inside ? last - 1 : last,
          .begun = {{last, "barrier", "", 0}},
          .waits_for = waits_for};
}

TEST(WaitGraph, ThoseWhoAreBehindAreWaitedFor) {
  const std::vector looks{at(3, true), at(2, false), RankLook{}, at(1, false)};
  const WaitGraph graph(looks);
  EXPECT_EQ(graph.groups().front().behind, RankList{3});
  EXPECT_EQ(graph.roots(), RankList{3});
  EXPECT_EQ(graph.circle(), RankList{});
  const auto waits = graph.waits_for(RankList{3});
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].ranks, RankList{0});
  EXPECT_FALSE(waits[0].begun);
}

TEST(WaitGraph, WhereAllHaveComeItCountsForWhomTheyWait) {
  const std::vector looks{at(3, true, 1), at(3, true, 2), at(3, true)};
  const WaitGraph graph(looks);
  EXPECT_EQ(graph.roots(), RankList{2});
  EXPECT_TRUE(graph.waits_for(RankList{2}).at(0).begun);
}

TEST(WaitGraph, WhoHasEndedItIsNotWaitedFor) {
  const std::vector looks{at(3, true, 1), at(3, false)};
  EXPECT_EQ(WaitGraph(looks).roots(), RankList{});
}

TEST(WaitGraph, WhatNobodyCanSayIsLeftOut) {
  const std::vector looks{at(3, true, 0), at(3, true, 7), at(3, true, -5)};
  const WaitGraph graph(looks);
  EXPECT_EQ(graph.roots(), RankList{});
  EXPECT_EQ(graph.circle(), RankList{});
}

TEST(WaitGraph, ACircleIsFoundWithoutThoseWhoWaitForIt) {
  const std::vector looks{at(3, true, 1), at(3, true, 2), at(3, true, 1), at(3, true, 0)};
  EXPECT_EQ(WaitGraph(looks).circle(), (RankList{1, 2}));
}

TEST(WaitGraph, AGroupWhoseRuleIsNotKnownHasTheRanksThatShowIt) {
  std::vector looks{at(1, false), at(1, false), at(1, false)};
  for (const int rank : {0, 2}) {
    looks[size_t(rank)].groups = {{.id = 5, .name = "half", .members = "no rule", .issued = 1}};
  }
  looks[2].groups[0].begun = {{1, "barrier", "", 0}};
  const WaitGraph graph(looks);
  ASSERT_EQ(graph.groups().size(), 2u);
  EXPECT_EQ(graph.groups()[1].members, (RankList{0, 2}));
  EXPECT_EQ(graph.roots(), RankList{0});
  EXPECT_EQ(text_in(graph.groups()[1], {1, "barrier", "", 0}),
            "barrier #1 (0 bytes) of half (ranks 0 and 2)");
}

}  // namespace
}  // namespace dsj::agent
