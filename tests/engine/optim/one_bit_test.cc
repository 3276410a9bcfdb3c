// The phases of the 1-bit optimizers and the numbers of their updates.
#include "engine/optim/one_bit.h"

#include <gtest/gtest.h>

namespace dsj::optim {
namespace {

dsconfig::ResolvedConfig config_of(double freeze_step, dsconfig::Precision precision) {
  dsconfig::ResolvedConfig config;
  config.precision = precision;
  config.optimizer.kind = OptimizerKind::OneBitAdam;
  config.optimizer.freeze_step = freeze_step;
  return config;
}

/// One letter per step: discarded, warm-up, compressed momentum or gradient, local.
std::string phases(double freeze_step, dsconfig::Precision precision) {
  std::string text;
  for (int64_t updates = 0; updates < 8; ++updates)
    text += "dwcgl"[static_cast<int>(one_bit_phase(config_of(freeze_step, precision), updates))];
  return text;
}

TEST(OneBit, OneBitAdamFreezesAfterItsStep) {
  using enum dsconfig::Precision;
  EXPECT_EQ(phases(5, Fp32), "dwwwwccc") << "freeze_step - 1 real updates";
  for (const double least : {0.0, 1.0, 2.0}) EXPECT_EQ(phases(least, Fp32), "dwcccccc") << least;
  for (const auto precision : {Fp16, Bf16})
    EXPECT_EQ(phases(5, precision), "wwwwcccc") << "the lost call came before training";
  EXPECT_EQ(phases(100000, Fp32), "dwwwwwww");
}

TEST(OneBit, ZeroOneAdamFollowsItsIntervals) {
  dsconfig::ResolvedConfig config;
  config.optimizer = {.kind = OptimizerKind::ZeroOneAdam,
                      .var_freeze_step = 13,
                      .var_update_scaler = 2,
                      .local_step_scaler = 3,
                      .local_step_clipper = 4};
  std::string text, meets;
  for (int64_t updates = 0; updates < 28; ++updates) {
    text += "dwcgl"[static_cast<int>(one_bit_phase(config, updates))];
    meets += local_interval(config, updates).meets ? 'x' : '.';
    EXPECT_EQ(local_interval(config, updates).first, updates == 14);
  }
  // Counts 2, 3 at k = 1; 4, 6 at 2; 8, 12 at 4; from 13 on k = 8. The freeze comes after count 14.
  EXPECT_EQ(text,
            "dwwwgwgwgggwgg"
            "llllllllllllll");
  // Counts 15 to 17 at h = 1; 18, 20 at 2; from 21 on at 4.
  EXPECT_EQ(meets,
            ".............."
            "xxxx.x...x...x");
  config.precision = dsconfig::Precision::Bf16;
  EXPECT_EQ(one_bit_phase(config, 0), OneBitPhase::WarmUp) << "no step is lost";
  EXPECT_EQ(one_bit_phase(config, 12), OneBitPhase::CompressedGradient);
  EXPECT_EQ(one_bit_phase(config, 13), OneBitPhase::LocalStep);
  EXPECT_TRUE(local_interval(config, 13).first);
}

TEST(OneBit, OneBitLambFollowsItsCoefficients) {
  auto config = config_of(5, dsconfig::Precision::Fp32);
  config.optimizer.kind = OptimizerKind::OneBitLamb;
  for (int64_t updates = 0; updates < 8; ++updates) {
    config.optimizer.kind = OptimizerKind::OneBitAdam;
    const auto adams = one_bit_phase(config, updates);
    config.optimizer.kind = OptimizerKind::OneBitLamb;
    EXPECT_EQ(one_bit_phase(config, updates), adams);
  }
  config.optimizer.coeff_beta = 0.75;
  config.optimizer.factor_max = 3;
  config.optimizer.factor_min = 0.25;
  config.optimizer.factor_threshold = 0.5;
  config.optimizer.max_coeff = 8;
  config.optimizer.min_coeff = 0.125;
  config.optimizer.eps_inside_sqrt = true;
  const auto update = one_bit_update(config, {.lr = 0.5}, 2, 0.25);
  ASSERT_TRUE(update.lamb);
  EXPECT_EQ(update.lamb->coeff_beta, 0.75);
  EXPECT_EQ(update.lamb->factor_max, 3);
  EXPECT_EQ(update.lamb->factor_min, 0.25);
  EXPECT_EQ(update.lamb->factor_threshold, 0.5);
  const auto rule = std::get<LambRule>(update.whole().rule);
  EXPECT_EQ(rule.lr, 0.5) << "no bias correction";
  EXPECT_EQ(rule.max_coeff, 8);
  EXPECT_EQ(rule.min_coeff, 0.125);
  EXPECT_FALSE(rule.eps_inside_sqrt) << "taken and never used";
  EXPECT_EQ(update.whole().grad_scale, 0.25);
}

TEST(OneBit, AnUpdateHasNoBiasCorrection) {
  auto config = config_of(5, dsconfig::Precision::Fp32);
  config.optimizer.bias_correction = true;
  config.optimizer.decoupled_weight_decay = false;
  const auto update = one_bit_update(config, {.lr = 0.5, .momentum = 0.8}, 7, 0.25);
  EXPECT_EQ(update.phase, OneBitPhase::CompressedMomentum);
  EXPECT_EQ(update.rule.correction1, 1);
  EXPECT_EQ(update.rule.correction2, 1);
  EXPECT_TRUE(update.rule.decoupled);
  EXPECT_EQ(update.rule.beta1, 0.8) << "the schedule's";
  EXPECT_EQ(update.rule.lr, 0.5);
  EXPECT_EQ(update.whole().grad_scale, 0.25);
  const auto variance = std::get<AdamRule>(update.frozen_variance().rule);
  EXPECT_EQ(variance.beta1, 0.8);
  EXPECT_EQ(variance.beta2, 1);
  const auto moments = std::get<AdamRule>(update.frozen_moments().rule);
  EXPECT_EQ(moments.beta1, 1);
  EXPECT_EQ(moments.beta2, 1);
}

}  // namespace
}  // namespace dsj::optim
