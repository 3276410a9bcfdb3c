#include "job/attempt_charge.h"

#include <gtest/gtest.h>

namespace dsj {
namespace {

TEST(AttemptCharge, ARankIsChargedByItsAgentWhoeverReplacesWorkers) {
  EXPECT_EQ(attempt_end_of(1, 3), AttemptEnd::RankFailed);
  EXPECT_EQ(attempt_end_of(-1, -1), AttemptEnd::RankFailed) << "strangers ended the ranks";
  for (const bool operated : {false, true}) {
    EXPECT_EQ(charger_of(AttemptEnd::RankFailed, operated), Charger::Agent);
  }
}

TEST(AttemptCharge, ALostWorkerIsChargedByWhoSeesItsPod) {
  EXPECT_EQ(attempt_end_of(1, -1), AttemptEnd::WorkerLost);
  EXPECT_EQ(charger_of(AttemptEnd::WorkerLost, true), Charger::Operator);
  EXPECT_EQ(charger_of(AttemptEnd::WorkerLost, false), Charger::Agent);
}

TEST(AttemptCharge, APodThatIsTakenAwayIsNobodysFault) {
  for (const bool operated : {false, true}) {
    EXPECT_EQ(charger_of(AttemptEnd::PodTaken, operated), Charger::Nobody);
  }
}

}  // namespace
}  // namespace dsj
