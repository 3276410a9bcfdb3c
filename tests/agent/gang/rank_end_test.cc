#include "agent/gang/rank_end.h"

#include <gtest/gtest.h>

#include <csignal>

#include "job/contract.h"

namespace dsj::agent {
namespace {

RankState ended(int code, int signal = 0) {
  return {.running = false, .exit_code = code, .signal = signal};
}
RankState own(int code, int signal = 0, bool asked = false) {
  return {.running = false, .exit_code = code, .signal = signal, .asked = asked, .own_codes = true};
}

TEST(RankEnd, OurRanksSayItByTheirCode) {
  EXPECT_EQ(end_of(RankState{}), RankEnd::Running);
  EXPECT_EQ(end_of(ended(contract::kExitDone)), RankEnd::Done);
  EXPECT_EQ(end_of(ended(contract::kExitPreempted)), RankEnd::Preempted);
  EXPECT_EQ(end_of(ended(contract::kExitPeerLost)), RankEnd::LostPeer);
  EXPECT_EQ(end_of(ended(contract::kExitBadInput)), RankEnd::Refused);
  EXPECT_EQ(end_of(ended(contract::kExitEnvironment)), RankEnd::Refused);
  EXPECT_EQ(end_of(ended(contract::kExitNotFinite)), RankEnd::Refused);
  EXPECT_EQ(end_of(ended(contract::kExitFailed)), RankEnd::Failed);
  EXPECT_EQ(end_of(ended(0, SIGSEGV)), RankEnd::Failed);
  RankState asked = ended(contract::kExitFailed);
  asked.asked = true;
  EXPECT_EQ(end_of(asked), RankEnd::Failed) << "ours say so when they have saved";
}

TEST(RankEnd, OfAUsersOwnProgramOnlyZeroMeansSomething) {
  EXPECT_EQ(end_of(own(0)), RankEnd::Done);
  for (const int code : {1, 2, 3, 86, 87, 255})
    EXPECT_EQ(end_of(own(code)), RankEnd::Failed) << code;
  EXPECT_EQ(end_of(own(0, SIGKILL)), RankEnd::Failed);
}

TEST(RankEnd, WhoWasAskedToLeaveIsNotDone) {
  EXPECT_EQ(end_of(own(0, 0, true)), RankEnd::Preempted);
  EXPECT_EQ(end_of(own(143, 0, true)), RankEnd::Preempted);
  EXPECT_EQ(end_of(own(0, SIGTERM, true)), RankEnd::Preempted);
  RankState killed = own(0, SIGKILL, true);
  killed.stopped = true;
  EXPECT_EQ(end_of(killed), RankEnd::Stopped);
}

}  // namespace
}  // namespace dsj::agent
