// The numbers of an update. What they do to tensors: tests/engine/zero/optimizers_oracle_test.cc.
#include "engine/optim/optimizer.h"

#include <gtest/gtest.h>

namespace dsj::optim {
namespace {

TEST(MakeUpdate, EveryOptimizerHasTheRuleOfItsKind) {
  for (const dsconfig::Optimizer& one : dsconfig::kOptimizers) {
    if (!one.refusal.empty() || one.communicates) continue;  // one_bit_test.cc has those
    const Update update = make_update(one.defaults, {.lr = 0.5, .previous_lr = 0.5}, 3, 2);
    const auto kind = std::visit([](const auto& rule) { return rule.kKind; }, update.rule);
    // Muon's is of what it leaves to AdamW.
    EXPECT_EQ(kind, one.name == "Muon" ? OptimizerKind::Adam : one.defaults.kind) << one.name;
    EXPECT_EQ(update.parameter_sums(), one.name == "Lamb") << one.name;
    EXPECT_FALSE(update.first);
  }
}

TEST(MakeUpdate, OfMuonItIsAdamWsWithItsOwnRate) {
  const auto config = dsconfig::find_optimizer("Muon")->defaults;
  const auto adam = [&](const Rates& rates) {
    return std::get<AdamRule>(make_update(config, rates, 1, 2).rule);
  };
  EXPECT_EQ(adam({.lr = 0.5, .adam_lr = 0.125}).lr, 0.125);
  EXPECT_EQ(adam({.lr = 0.5}).lr, 0.5);
  EXPECT_EQ(adam({.lr = 0.5}).eps, 1e-10);
  EXPECT_EQ(adam({.lr = 0.5}).correction2, 1 - 0.95 * 0.95);
}

TEST(MakeUpdate, MaximizeTurnsTheGradient) {
  OptimizerConfig config{.kind = OptimizerKind::Sgd, .maximize = true};
  EXPECT_EQ(make_update(config, {.lr = 1}, 0, 0.25).grad_scale, -0.25);
  EXPECT_TRUE(make_update(config, {.lr = 1}, 0, 0.25).first);
}

TEST(MakeUpdate, TheSchedulesMomentumReplacesTheConfigs) {
  const OptimizerConfig sgd{.kind = OptimizerKind::Sgd, .momentum = 0.5};
  const auto rule = [](const Update& update) { return std::get<SgdRule>(update.rule); };
  EXPECT_EQ(rule(make_update(sgd, {.lr = 1}, 0, 1)).momentum, 0.5);
  EXPECT_EQ(rule(make_update(sgd, {.lr = 1, .momentum = 0.75}, 0, 1)).momentum, 0.75);
  const OptimizerConfig adam;
  const auto update = make_update(adam, {.lr = 1, .momentum = 0.5, .beta2 = 0.25}, 1, 1);
  EXPECT_EQ(std::get<AdamRule>(update.rule).correction1, 1 - 0.5 * 0.5);
  EXPECT_EQ(std::get<AdamRule>(update.rule).correction2, 1 - 0.25 * 0.25);
}

TEST(LambCoefficient, IsTheQuotientOfTheNormsWithinItsBounds) {
  const LambRule rule{.min_coeff = 0.5, .max_coeff = 4};
  EXPECT_EQ(lamb_coefficient(rule, 9, 1), 3);
  EXPECT_EQ(lamb_coefficient(rule, 100, 1), 4);
  EXPECT_EQ(lamb_coefficient(rule, 1, 100), 0.5);
  EXPECT_EQ(lamb_coefficient(rule, 0, 1), 1);
  EXPECT_EQ(lamb_coefficient(rule, 1, 0), 1);
}

}  // namespace
}  // namespace dsj::optim
