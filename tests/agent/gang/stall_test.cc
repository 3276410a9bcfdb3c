// Who is to blame, by what every rank shows.
#include "agent/gang/stall.h"

#include <gtest/gtest.h>

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

struct Case {
  const char* name;
  std::vector<RankLook> looks;
  Stall expected;
};

class StallTest : public testing::TestWithParam<Case> {};

TEST_P(StallTest, IsJudged) {
  const Stall found = judge_stall(GetParam().looks);
  EXPECT_EQ(found.message, GetParam().expected.message);
  EXPECT_EQ(found.collective, GetParam().expected.collective);
  EXPECT_EQ(found.ranks, GetParam().expected.ranks);
}

const Case kCases[] = {
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

}  // namespace
}  // namespace dsj::agent
