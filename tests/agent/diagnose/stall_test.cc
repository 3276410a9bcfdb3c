// Who is to blame, by what every rank shows.
#include "agent/diagnose/stall.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/diagnose/wait_graph.h"

namespace dsj::agent {
namespace {

const CollectiveSeen kScatter{411, "reduce_scatter", "layer 2", 8192};
const CollectiveSeen kGather{412, "all_gather", "layer 3", 4096};

RankLook waiting_in(const CollectiveSeen& what, int64_t quiet_ms = 30'000) {
  return {.known = true,
          .phase = "training",
          .step = 41,
          .issued = what.sequence,
          .ended = what.sequence - 1,
          .quiet_ms = quiet_ms,
          .begun = {what}};
}
RankLook after(const CollectiveSeen& what, int64_t quiet_ms = 31'000) {
  RankLook look = waiting_in(what, quiet_ms);
  look.ended = what.sequence;
  return look;
}
RankLook stopped(RankLook look) {
  look.stopped = true;
  return look;
}

struct StallCase {
  const char* name;
  std::vector<RankLook> looks;
  Stall expected;
};

class StallTest : public testing::TestWithParam<StallCase> {};

TEST_P(StallTest, IsJudged) {
  const Stall found = judge_stall(GetParam().looks);
  EXPECT_EQ(found.message, GetParam().expected.message);
  EXPECT_EQ(found.collective, GetParam().expected.collective);
  EXPECT_EQ(found.ranks, GetParam().expected.ranks);
}

const StallCase kCases[] = {
    {"OneDidNotArrive",
     {waiting_in(kGather), waiting_in(kGather), after(kScatter), waiting_in(kGather)},
     {"rank 2 did not arrive: it is in step 41, training, and ended reduce_scatter #411 (layer 2, "
      "8192 bytes) 31 s ago; ranks 0-1 and 3 wait in all_gather #412 (layer 3, 4096 bytes)",
      "all_gather #412 (layer 3, 4096 bytes)",
      {2}}},
    {"TwoDidNotArrive",
     {after(kScatter), waiting_in(kGather), after(kScatter)},
     {"ranks 0 and 2 did not arrive: rank 0 is in step 41, training, and ended reduce_scatter #411 "
      "(layer 2, 8192 bytes) 31 s ago; rank 1 waits in all_gather #412 (layer 3, 4096 bytes)",
      "all_gather #412 (layer 3, 4096 bytes)",
      {0, 2}}},
    {"OneIsStopped",
     {waiting_in(kGather), stopped(after(kScatter))},
     {"rank 1 is stopped (SIGSTOP): it is in step 41, training, and ended reduce_scatter #411 "
      "(layer 2, 8192 bytes) 31 s ago; rank 0 waits in all_gather #412 (layer 3, 4096 bytes)",
      "all_gather #412 (layer 3, 4096 bytes)",
      {1}}},
    {"OneIsStoppedInTheCollectiveThatAllHaveBegun",
     {waiting_in(kGather), stopped(waiting_in(kGather)), waiting_in(kGather)},
     {"rank 1 is stopped (SIGSTOP): it is in step 41, training, in all_gather #412 (layer 3, 4096 "
      "bytes) for 30 s; ranks 0 and 2 wait in all_gather #412 (layer 3, 4096 bytes)",
      "all_gather #412 (layer 3, 4096 bytes)",
      {1}}},
    {"TwoAreStoppedAndNobodyWaits",
     {stopped(after(kGather)), stopped(after(kGather))},
     {"ranks 0-1 are stopped (SIGSTOP): rank 0 is in step 41, training, and ended all_gather #412 "
      "(layer 3, 4096 bytes) 31 s ago",
      "",
      {0, 1}}},
    {"OneIssuesAnotherCollective",
     {waiting_in(kGather), waiting_in({412, "all_gather", "layer 4", 4096}), waiting_in(kGather)},
     {"the ranks issue different collectives: all_gather #412 (layer 3, 4096 bytes) on ranks 0 and "
      "2, all_gather #412 (layer 4, 4096 bytes) on rank 1",
      "all_gather #412 (layer 3, 4096 bytes)",
      {1}}},
    {"TwoSidesOfOneSize",
     {waiting_in(kGather), waiting_in({412, "all_gather", "layer 3", 4098})},
     {"the ranks issue different collectives: all_gather #412 (layer 3, 4096 bytes) on rank 0, "
      "all_gather #412 (layer 3, 4098 bytes) on rank 1",
      "all_gather #412 (layer 3, 4096 bytes)",
      {}}},
    {"AllWaitInDifferentCollectives",
     {waiting_in({10, "broadcast", "", 8}), waiting_in({12, "barrier", "", 0}),
      waiting_in({11, "all_reduce", "step", 48})},
     {"rank 0 did not arrive: it is in step 41, training, in broadcast #10 (8 bytes) for 30 s; "
      "ranks 1-2 wait in all_reduce #11 (step, 48 bytes)",
      "all_reduce #11 (step, 48 bytes)",
      {0}}},
    {"AllAreInOneThatDoesNotEnd",
     {waiting_in(kGather), waiting_in(kGather)},
     {"ranks 0-1 are in all_gather #412 (layer 3, 4096 bytes), which every rank has begun and "
      "which "
      "does not end",
      "all_gather #412 (layer 3, 4096 bytes)",
      {}}},
    {"NobodyIsInOne",
     {after(kGather), after(kGather)},
     {"no rank is in a collective: rank 0 is in step 41, training, and ended all_gather #412 "
      "(layer "
      "3, 4096 bytes) 31 s ago",
      "",
      {}}},
    {"TheOnlyRank",
     {{.known = true, .phase = "reading rows", .step = 7}},
     {"rank 0 is in step 7, reading rows, and has not begun a collective", "", {0}}},
    {"OneHasNoFlightLog",
     {waiting_in(kGather), {}, after(kScatter)},
     {"rank 2 did not arrive: it is in step 41, training, and ended reduce_scatter #411 (layer 2, "
      "8192 bytes) 31 s ago; rank 0 waits in all_gather #412 (layer 3, 4096 bytes)",
      "all_gather #412 (layer 3, 4096 bytes)",
      {2}}},
    {"NobodyHasAFlightLog", {{}, {}}, {"no rank keeps a flight log", "", {}}},
    {"OneHasNotBegunAny",
     {waiting_in({1, "barrier", "", 0}), {.known = true, .phase = "starting"}},
     {"rank 1 did not arrive: it is starting, and has not begun a collective; rank 0 waits in "
      "barrier #1 (0 bytes)",
      "barrier #1 (0 bytes)",
      {1}}},
};

INSTANTIATE_TEST_SUITE_P(All, StallTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

/// Two hosts of two ranks: groups host 0 and 2 (numbers 1 and 2), rail 0 and 1 (3 and 4). Each rank
/// has begun the same all_gather, whose parts are #7 of the rail and #9 of the host.
class TwoLevels : public testing::Test {
 protected:
  enum class At { Rail, BehindTheRail, Host };
  static GroupLook group(int64_t id, const char* name, const char* members, int64_t last, bool in) {
    return {.id = id,
            .name = name,
            .members = members,
            .within = 0,
            .issued = last,
            .ended = in ? last - 1 : last,
            .quiet_ms = 30'000,
            .begun = {{last, "all_gather", "layer 3", 2048}}};
  }
  static RankLook rank(int number, At at, int rail_waits_for = -1) {
    RankLook look = waiting_in(kGather);
    GroupLook host =
        number < 2 ? group(1, "host 0", "0+1x2", 8, false) : group(2, "host 2", "2+1x2", 8, false);
    GroupLook rail = number % 2 == 0 ? group(3, "rail 0", "0+2x2", 7, at == At::Rail)
                                     : group(4, "rail 1", "1+2x2", 7, at == At::Rail);
    if (at == At::Host) host = group(host.id, host.name.c_str(), host.members.c_str(), 9, true);
    rail.waits_for = rail_waits_for;
    rail.quiet_ms = at == At::Rail ? 30'000 : 29'000;
    look.groups = {host, rail};
    return look;
  }
};

constexpr char kInRail[] = "all_gather #7 (layer 3, 2048 bytes) of rail 1 (ranks 1 and 3)";

TEST_F(TwoLevels, WhoDoesNotGoOnInTheOuterRingIsNamed) {
  const auto stall = judge_stall(
      std::vector{rank(0, At::Host), rank(1, At::Rail, 3), rank(2, At::Host), rank(3, At::Rail)});
  EXPECT_EQ(stall.ranks, std::vector{3});
  EXPECT_EQ(stall.collective, kInRail);
  EXPECT_EQ(stall.message,
            "rank 3 does not go on: it is in step 41, training, in all_gather #412 (layer 3, 4096 "
            "bytes) for 30 s, there in " +
                std::string(kInRail) + "; rank 1 waits in " + kInRail +
                "; rank 2 waits in all_gather #9 (layer 3, 2048 bytes) of host 2 (ranks 2-3)");
}

TEST_F(TwoLevels, WhoDidNotComeToTheInnerPartIsNamed) {
  const auto stall = judge_stall(std::vector{rank(0, At::Host), rank(1, At::BehindTheRail),
                                             rank(2, At::Host), rank(3, At::Host)});
  EXPECT_EQ(stall.ranks, std::vector{1});
  EXPECT_EQ(stall.collective, "all_gather #9 (layer 3, 2048 bytes) of host 0 (ranks 0-1)");
  EXPECT_THAT(stall.message, testing::StartsWith("rank 1 did not arrive: it is in step 41"));
  EXPECT_THAT(stall.message, testing::HasSubstr(", there behind " + std::string(kInRail)));
}

TEST_F(TwoLevels, ABrokenConnectionHasTwoEnds) {
  const auto stall = judge_stall(std::vector{rank(0, At::Host), rank(1, At::Rail, 3),
                                             rank(2, At::Host), rank(3, At::Rail, 1)});
  EXPECT_EQ(stall.ranks, (std::vector{1, 3}));
  EXPECT_EQ(stall.message, "ranks 1 and 3 wait for one another in " + std::string(kInRail) +
                               "; ranks 0 and 2 wait for them");
}

TEST_F(TwoLevels, IfAllHangBetweenTheHostsTheirRailsAreTold) {
  const auto stall = judge_stall(std::vector{rank(0, At::Rail, 2), rank(1, At::Rail, 3),
                                             rank(2, At::Rail, 0), rank(3, At::Rail, 1)});
  EXPECT_TRUE(stall.ranks.empty());
  EXPECT_THAT(stall.message,
              testing::AllOf(testing::StartsWith("ranks 0-3 are in all_gather #412"),
                             testing::HasSubstr(": ranks 0 and 2 in all_gather #7"),
                             testing::HasSubstr(", ranks 1 and 3 in " + std::string(kInRail))));
}

TEST_F(TwoLevels, OneThatHasNotBegunTheCollectiveIsToldWithoutItsParts) {
  RankLook late = rank(3, At::BehindTheRail);
  late.begun = {kScatter};
  late.ended = kScatter.sequence;
  late.groups[1].ended = late.groups[1].begun[0].sequence = 6;
  const auto stall =
      judge_stall(std::vector{rank(0, At::Host), rank(1, At::Rail, 3), rank(2, At::Host), late});
  EXPECT_EQ(stall.ranks, std::vector{3});
  EXPECT_EQ(
      stall.message,
      "rank 3 did not arrive: it is in step 41, training, and ended reduce_scatter #411 (layer "
      "2, 8192 bytes) 30 s ago; ranks 0-2 wait in all_gather #412 (layer 3, 4096 bytes)");
}

TEST_F(TwoLevels, WhoWaitsInAGroupIsNoCulprit) {
  const auto in_half = [](RankLook look, int64_t last, bool in, const char* members) {
    look.groups = {{.id = members[0] == '0' ? 5 : 6,
                    .name = "half",
                    .members = members,
                    .issued = last,
                    .ended = in ? last - 1 : last,
                    .begun = {{last, "all_reduce", "norm", 256}}}};
    return look;
  };
  const auto stall = judge_stall(std::vector{in_half(waiting_in(kGather), 2, false, "0+2x2"),
                                             in_half(after(kScatter), 2, true, "1+2x2"),
                                             in_half(waiting_in(kGather), 2, false, "0+2x2"),
                                             in_half(after(kScatter), 1, false, "1+2x2")});
  EXPECT_EQ(stall.ranks, std::vector{3}) << stall.message;
}

TEST_F(TwoLevels, AWorldOf512HostsIsToldInAFewWords) {
  std::vector<RankLook> looks;
  for (int number = 0; number < 4096; ++number) {
    const int host = number / 8 * 8, place = number % 8;
    RankLook look = waiting_in(kGather);
    look.groups = {group(10'000 + host, ("host " + std::to_string(host)).c_str(),
                         (std::to_string(host) + "+1x8").c_str(), 9, true),
                   group(1 + place, ("rail " + std::to_string(place)).c_str(),
                         (std::to_string(place) + "+8x512").c_str(), 7, false)};
    looks.push_back(look);
  }
  RankLook& frozen = looks[1003];
  frozen.groups[0].begun[0].sequence = frozen.groups[0].ended = 8;
  frozen.groups[1].ended = 6;
  for (int other = 3; other < 4096; other += 8) {
    if (other == 1003) continue;
    looks[other] = looks[1003];
    looks[other].groups[0].id = 10'000 + other / 8 * 8;
    looks[other].groups[0].name = "host " + std::to_string(other / 8 * 8);
    looks[other].groups[0].members = std::to_string(other / 8 * 8) + "+1x8";
    looks[other].groups[1].waits_for = (other + 4096 - 8) % 4096;
  }
  const Stall stall = judge_stall(looks);
  EXPECT_EQ(stall.ranks, std::vector{1003});
  EXPECT_THAT(stall.collective,
              testing::EndsWith("of rail 3 (ranks 3, 11, 19, 27, 35, 43, 51, 59 and more)"));
  EXPECT_LT(stall.message.size(), 700u) << stall.message;
}

TEST(RanksText, ShortensStretchesAndLongLists) {
  EXPECT_EQ(ranks_text(std::vector{3}), "rank 3");
  EXPECT_EQ(ranks_text(std::vector{1, 2}), "ranks 1-2");
  EXPECT_EQ(ranks_text(std::vector{1, 3, 5, 6}), "ranks 1, 3 and 5-6");
  EXPECT_EQ(ranks_list(std::vector{1, 3, 5, 6}), "1, 3, 5-6");
  std::vector<int> even;
  for (int rank = 0; rank < 4096; rank += 2) even.push_back(rank);
  EXPECT_EQ(ranks_text(even), "ranks 0, 2, 4, 6, 8, 10, 12, 14 and more");
}

TEST(Stall, AWorldOf4096WithOneMissingIsShort) {
  std::vector<RankLook> looks(4096, waiting_in(kGather));
  looks[1000] = after(kScatter);
  const Stall stall = judge_stall(looks);
  EXPECT_EQ(stall.ranks, std::vector{1000});
  EXPECT_LT(stall.message.size(), 250u);
}

/// Of the larger world each rank is not held against every other one: that would take minutes.
TEST(Stall, AWorldInWhichAllDifferIsShort) {
  for (const int world : {4096, 262'144}) {
    std::vector<RankLook> looks;
    for (int rank = 0; rank < world; ++rank)
      looks.push_back(waiting_in({412, "all_gather", "layer 3", 2 * world - rank}));
    const Stall stall = judge_stall(looks);
    const auto on = [&](int rank) {
      return "all_gather #412 (layer 3, " + std::to_string(2 * world - rank) + " bytes) on rank " +
             std::to_string(rank);
    };
    EXPECT_EQ(stall.message, "the ranks issue different collectives: " + on(0) + ", " + on(1) +
                                 ", " + on(2) + ", " + on(3) + " and " + std::to_string(world - 4) +
                                 " more");
    EXPECT_TRUE(stall.ranks.empty()) << "nobody can be told apart";
  }
}

}  // namespace
}  // namespace dsj::agent
