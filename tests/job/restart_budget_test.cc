#include "job/restart_budget.h"

#include <gtest/gtest.h>

#include <vector>

namespace dsj {
namespace {

TEST(RestartBudget, IsSpentOneByOneWithDoublingPauses) {
  RestartBudget budget{.limit = 3};
  for (int expected_ms : {0, 1000, 2000}) {
    const auto verdict = charge_restart(budget, -1);
    ASSERT_TRUE(verdict.allowed);
    EXPECT_EQ(verdict.pause.count(), expected_ms);
    budget = verdict.budget;
  }
  const auto last = charge_restart(budget, -1);
  EXPECT_FALSE(last.allowed);
  EXPECT_EQ(last.budget.used, 3);
  EXPECT_EQ(last.budget.total, 3);
}

TEST(RestartBudget, EndsThatTheAccountLacksAreChargedInOrder) {
  const RestartBudget account{.limit = 3, .used = 2, .total = 4, .saved_step = 10};
  EXPECT_EQ(charge_ends(account, {}).budget.used, 2);
  const std::vector<ChargedEnd> same{{7, 10}};
  EXPECT_TRUE(charge_ends(account, same).allowed);
  EXPECT_EQ(charge_ends(account, same).budget.used, 3);
  EXPECT_EQ(charge_ends(account, same).budget.total, 5);
  const std::vector<ChargedEnd> two{{7, 10}, {8, 10}};
  EXPECT_FALSE(charge_ends(account, two).allowed);
  const std::vector<ChargedEnd> with_progress{{7, 20}, {8, 20}, {9, 30}};
  EXPECT_TRUE(charge_ends(account, with_progress).allowed);
  EXPECT_EQ(charge_ends(account, with_progress).budget.used, 1);
  EXPECT_EQ(charge_ends(account, with_progress).budget.saved_step, 30);
}

/// Whoever knows the cause charges it.
TEST(RestartBudget, ALostWorkerIsTheOperatorsToCharge) {
  for (const bool operated : {false, true}) {
    EXPECT_TRUE(agent_charges(1, 3, operated)) << "a rank failed";
    EXPECT_TRUE(agent_charges(-1, -1, operated)) << "someone else ended the ranks";
  }
  EXPECT_FALSE(agent_charges(1, -1, true));
  EXPECT_TRUE(agent_charges(1, -1, false)) << "nobody else can";
}

TEST(RestartBudget, NewerCheckpointGivesItBackAnOldOneDoesNot) {
  RestartBudget budget{.limit = 1, .used = 1, .total = 1, .saved_step = 10};
  EXPECT_FALSE(charge_restart(budget, 10).allowed);
  EXPECT_FALSE(charge_restart(budget, -1).allowed);
  const auto verdict = charge_restart(budget, 11);
  EXPECT_TRUE(verdict.allowed);
  EXPECT_EQ(verdict.budget.used, 1);
  EXPECT_EQ(verdict.budget.total, 2);
  EXPECT_EQ(verdict.budget.saved_step, 11);
  EXPECT_EQ(verdict.pause.count(), 0) << "a checkpoint was written: it is the first failure since";
}

TEST(RestartBudget, ZeroMeansNoRestartAndThePauseHasACeiling) {
  EXPECT_FALSE(charge_restart({.limit = 0}, -1).allowed);
  EXPECT_EQ(charge_restart({.limit = 1000, .used = 400}, -1).pause.count(), 30'000);
}

}  // namespace
}  // namespace dsj
