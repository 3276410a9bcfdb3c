// fp16: the same training as in fp32 within its rounding; what overflows is skipped, scaled down
// and named.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/support/poisoned.h"
#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

using dsconfig::Precision;

SmallRun in_precision(Precision precision, int stage, int64_t accumulation = 1) {
  SmallRun run{.config = small_config(stage, 2, accumulation)};
  run.config.precision = run.config.communication_dtype = run.config.grad_accum_dtype = precision;
  run.config.loss_scale.initial = 4096;
  return run;
}

/// Every step of rank 0.
std::vector<StepResult> steps_of(const SmallRun& run) {
  std::vector<StepResult> results;
  testing_support::run_ranks(run.world, [&](comm::Collectives& collectives, memory::Ledger&) {
    Rank rank(run, collectives);
    rank.load(run.model);
    for (int64_t step = 0; step < run.steps; ++step) {
      const auto result = rank.step(step);
      if (collectives.rank() == 0) results.push_back(result);
    }
  });
  return results;
}

TEST(Fp16, EveryStageFollowsFp32) {
  for (const int64_t accumulation : {1, 2}) {
    const auto wide = run_small(in_precision(Precision::Fp32, 0, accumulation));
    for (int stage = 0; stage <= 3; ++stage) {
      const auto half = run_small(in_precision(Precision::Fp16, stage, accumulation));
      for (size_t i = 0; i < wide.losses.size(); ++i) {
        EXPECT_NEAR(half.losses[i], wide.losses[i], 3e-3 * wide.losses[i]) << "stage " << stage;
        EXPECT_NEAR(half.norms[i], wide.norms[i], 3e-2 * wide.norms[i]) << "stage " << stage;
      }
      EXPECT_NE(half.losses, wide.losses) << "this was not fp16";
    }
  }
}

TEST(Fp16, TheScaleDoesNotChangeTheUpdate) {
  auto small = in_precision(Precision::Fp16, 2), large = small;
  small.config.loss_scale.fixed = 1024;
  large.config.loss_scale.fixed = 8192;
  const auto a = steps_of(small), b = steps_of(large);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].loss_scale, 1024);
    EXPECT_EQ(b[i].loss_scale, 8192);
    EXPECT_NEAR(a[i].loss, b[i].loss, 1e-3 * a[i].loss);
    EXPECT_NEAR(a[i].grad_norm, b[i].grad_norm, 1e-2 * a[i].grad_norm);
  }
}

TEST(Fp16, AnOverflowSkipsTheStepAndHalvesTheScale) {
  for (int stage = 1; stage <= 3; ++stage) {
    auto run = in_precision(Precision::Fp16, stage);
    run.config.loss_scale.hysteresis = 1;
    testing_support::run_ranks(2, [&](comm::Collectives& inner, memory::Ledger&) {
      testing_support::Poisoned collectives(inner);
      Rank rank(run, collectives);
      rank.load(run.model);
      const auto weights = [&] {
        std::map<std::string, at::Tensor> all;
        rank.state.visit_weights(
            [&](const layout::Slot& slot, const at::Tensor& v) { all[slot.name] = v.clone(); });
        return all;
      };
      EXPECT_FALSE(rank.step(0).skipped);
      const auto before = weights();
      const auto& flat = rank.state.plan().flats[1];  // the first layer's
      const auto& slot = flat.slots().back();
      if (collectives.rank() == 1) collectives.arm(flat.name(), slot.offset + slot.numel - 1);
      const auto bad = rank.step(1);
      EXPECT_TRUE(bad.skipped);
      EXPECT_FALSE(std::isfinite(bad.grad_norm));
      EXPECT_EQ(bad.loss_scale, 4096);
      EXPECT_EQ(bad.bad_gradient, slot.name) << "stage " << stage;
      EXPECT_FALSE(bad.scale_exhausted);
      EXPECT_EQ(rank.stepper.updates(), 1);
      for (const auto& [name, value] : weights()) EXPECT_TRUE(value.equal(before.at(name)));
      const auto after = rank.step(2);
      EXPECT_FALSE(after.skipped);
      EXPECT_EQ(after.loss_scale, 2048);
      EXPECT_EQ(rank.stepper.updates(), 2);
    });
  }
}

TEST(Fp16, TheScaleFallsUntilNothingOverflows) {
  auto run = in_precision(Precision::Fp16, 2);
  run.steps = 24;
  run.config.loss_scale = {.initial = std::ldexp(1.0, 30), .hysteresis = 1};
  const auto results = steps_of(run);
  EXPECT_TRUE(results.front().skipped);
  EXPECT_FALSE(results.front().bad_gradient.empty());
  size_t first = 0;
  while (first < results.size() && results[first].skipped) ++first;
  ASSERT_LT(first, results.size());
  EXPECT_EQ(results[first].loss_scale, std::ldexp(1.0, 30 - static_cast<int>(first)));
}

TEST(Fp16, TheStepThatDoublesTheScaleDividesByTheNewOne) {
  // Plain SGD: a weight moves by lr times the gradient that the update saw.
  auto run = in_precision(Precision::Fp16, 2);
  run.config.optimizer = {.kind = dsconfig::OptimizerKind::Sgd, .lr = 0.125};
  run.config.gradient_clipping = 0;
  run.steps = 2;
  const auto moved = [&](const dsconfig::LossScaleConfig& scale) {
    auto one = run, two = run;
    one.steps = 1;
    one.config.loss_scale = two.config.loss_scale = scale;
    const auto a = run_small(one), b = run_small(two);
    const std::string name = "model.layers.0.mlp.down_proj.weight";
    return (b.weights.at(name) - a.weights.at(name)).norm().item<double>();
  };
  const double whole = moved({.fixed = 4096}), half = moved({.initial = 4096, .window = 1});
  EXPECT_NEAR(half, whole / 2, 2e-2 * whole);
}

TEST(Fp16, AtTheMinimumTheRunIsOver) {
  auto run = in_precision(Precision::Fp16, 2);
  run.steps = 2;
  run.config.loss_scale = {
      .initial = std::ldexp(1.0, 30), .hysteresis = 1, .minimum = std::ldexp(1.0, 29)};
  const auto results = steps_of(run);
  EXPECT_FALSE(results[0].scale_exhausted);
  EXPECT_TRUE(results[1].scale_exhausted);
  EXPECT_EQ(results[1].loss_scale, std::ldexp(1.0, 29));
  EXPECT_FALSE(results[1].bad_gradient.empty());
}

/// Whether a step with one infinite gradient is skipped.
bool skips(Precision precision, int stage, bool check) {
  auto run = in_precision(precision, stage);
  run.config.bf16_check_grad_overflow = check;
  bool skipped = false;
  testing_support::run_ranks(2, [&](comm::Collectives& inner, memory::Ledger&) {
    testing_support::Poisoned collectives(inner);
    Rank rank(run, collectives);
    rank.load(run.model);
    collectives.arm(rank.state.plan().flats[0].name(), 0);
    const auto result = rank.step(0);
    EXPECT_FALSE(std::isfinite(result.grad_norm));
    if (collectives.rank() == 0) skipped = result.skipped;
  });
  return skipped;
}

TEST(Overflow, EveryTypeIsJudgedAsDeepSpeedsOptimizersDo) {
  for (int stage = 1; stage <= 3; ++stage) {
    EXPECT_TRUE(skips(Precision::Fp16, stage, false)) << stage;
    EXPECT_TRUE(skips(Precision::Fp32, stage, false)) << stage;
    EXPECT_TRUE(skips(Precision::Bf16, stage, true)) << stage;
    EXPECT_EQ(skips(Precision::Bf16, stage, false), stage == 3) << stage;
  }
}

}  // namespace
}  // namespace dsj::train
