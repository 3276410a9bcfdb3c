#include "job/restart_budget.h"

#include <gtest/gtest.h>

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

TEST(RestartBudget, TheOperatorsAccountHoldsWithWhatItDoesNotKnowYet) {
  const RestartBudget own{.limit = 3, .used = 2, .total = 2, .saved_step = 10};
  // It left one of the two uncharged, and counted a pod that this agent knows nothing of.
  EXPECT_EQ(with_account(own, 0, {.limit = 5, .used = 1, .total = 4, .saved_step = 10}).used, 1);
  EXPECT_EQ(with_account(own, 0, {.limit = 5, .used = 1, .total = 4, .saved_step = 10}).limit, 5);
  EXPECT_EQ(with_account(own, 0, {.limit = 5, .used = 1, .total = 4, .saved_step = 10}).total, 4);
  EXPECT_EQ(with_account(own, 1, {.limit = 3, .used = 1, .saved_step = 10}).used, 2);
  EXPECT_EQ(with_account(own, 0, {.limit = 3, .used = 1, .saved_step = 20}).saved_step, 20);
  // It has not heard of the charge that began anew at step 10.
  EXPECT_EQ(with_account(own, 1, {.limit = 3, .used = 3, .saved_step = -1}).used, 2);
  EXPECT_EQ(with_account(own, 1, {.limit = 3, .used = 3, .saved_step = -1}).saved_step, 10);
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
