// 1-bit optimizers in whole steps: stage 1 equals stage 0, each rank clips by its own norm, and a bad
// gradient of one rank skips the step on all.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

using dsconfig::Precision;

SmallRun one_bit(int world, int stage) {
  SmallRun run{.world = world, .steps = 16, .config = small_config(stage)};
  run.config.optimizer.kind = dsconfig::OptimizerKind::OneBitAdam;
  run.config.optimizer.freeze_step = 5;
  run.config.optimizer.eps = 1e-3;
  run.config.gradient_clipping = 0;
  return run;
}

TEST(OneBitSteps, StageOneEqualsStageZero) {
  for (const int world : {2, 3}) {
    const auto whole = run_small(one_bit(world, 0)), sharded = run_small(one_bit(world, 1));
    EXPECT_LE(apart(sharded, whole), 1e-6) << "world " << world;
    EXPECT_NE(whole.losses[15], whole.losses[5]) << "a run that says nothing";
    for (const auto& [name, value] : whole.weights)
      EXPECT_LE((sharded.weights.at(name) - value).abs().max().item<double>(), 1e-5) << name;
  }
}

TEST(OneBitSteps, OneBitLambAtStageOneEqualsStageZero) {
  for (const int world : {2, 3}) {
    auto run = one_bit(world, 0);
    run.config.optimizer.kind = dsconfig::OptimizerKind::OneBitLamb;
    run.config.optimizer.weight_decay = 0.01;
    const auto whole = run_small(run);
    run.config.zero.stage = 1;
    EXPECT_LE(apart(run_small(run), whole), 1e-6) << "world " << world;
    EXPECT_NE(whole.losses[15], whole.losses[5]);
  }
}

/// Through averaged and compressed gradients, the freeze, and local steps at intervals of 1 to 4.
TEST(OneBitSteps, ZeroOneAdamAtStageOneEqualsStageZero) {
  for (const auto precision : {Precision::Fp32, Precision::Bf16}) {
    for (const int world : {2, 3}) {
      auto run = one_bit(world, 0);
      run.steps = 28;
      run.config.precision = run.config.communication_dtype = run.config.grad_accum_dtype =
          precision;
      run.config.optimizer.kind = dsconfig::OptimizerKind::ZeroOneAdam;
      run.config.optimizer.weight_decay = 0.01;
      run.config.optimizer.var_freeze_step = 9;
      run.config.optimizer.var_update_scaler = 2;
      run.config.optimizer.local_step_scaler = 3;
      run.config.optimizer.local_step_clipper = 4;
      const auto whole = run_small(run);
      run.config.zero.stage = 1;
      const auto sharded = run_small(run);
      EXPECT_LE(apart(sharded, whole), 1e-6) << "world " << world;
      EXPECT_NE(whole.losses[27], whole.losses[10]);
      if (precision != Precision::Fp32) continue;
      for (const auto& [name, value] : whole.weights)
        EXPECT_LE((sharded.weights.at(name) - value).abs().max().item<double>(), 1e-5) << name;
    }
  }
}

TEST(OneBitSteps, AccumulationAndRecomputeChangeNothing) {
  auto run = one_bit(2, 0);
  run.config = one_bit(2, 0).config;
  run.config.gradient_accumulation_steps = 2;
  const auto once = run_small(run);
  run.recompute = true;
  EXPECT_LE(apart(run_small(run), once), 1e-6);
  run.config.zero.stage = 1;
  EXPECT_LE(apart(run_small(run), once), 1e-6);
}

TEST(OneBitSteps, TheFreezeChangesTheRun) {
  auto late = one_bit(2, 0);
  late.config.optimizer.freeze_step = 8;
  const auto early = run_small(one_bit(2, 0)), other = run_small(late);
  for (size_t step = 0; step <= 5; ++step) EXPECT_EQ(early.losses[step], other.losses[step]);
  EXPECT_NE(early.losses[6], other.losses[6]);
}

TEST(OneBitSteps, SixteenBitsTrainAtBothStages) {
  for (const auto precision : {Precision::Bf16, Precision::Fp16}) {
    for (const int stage : {0, 1}) {
      auto run = one_bit(2, stage);
      run.config.precision = run.config.communication_dtype = run.config.grad_accum_dtype =
          precision;
      run.config.loss_scale = {.initial = std::ldexp(1.0, 14), .window = 4, .hysteresis = 1};
      const auto result = run_small(run);
      for (const double loss : result.losses) EXPECT_TRUE(std::isfinite(loss));
      EXPECT_LT(result.losses.back(), result.losses.front() + 0.5);
    }
  }
}

TEST(OneBitSteps, EachRankClipsByItsOwnNorm) {
  auto run = one_bit(2, 0);
  run.config.gradient_clipping = 1e-3;
  std::vector<double> norms(2);
  std::vector<at::Tensor> first(2);
  testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger&) {
    Rank rank(run, collectives);
    rank.load(run.model);
    StepResult done;
    for (int64_t step = 0; step < 8; ++step) done = rank.step(step);
    const auto at = static_cast<size_t>(collectives.rank());
    norms[at] = done.grad_norm;
    memory::MemoryScope outside(memory::Class::Activations, memory::process_ledger());
    first[at] = rank.state.flat(1).weight(0).clone();
  });
  EXPECT_NE(norms[0], norms[1]) << "of the local gradients";
  EXPECT_TRUE(at::equal(first[0], first[1])) << "and the ranks stay equal";
}

}  // namespace
}  // namespace dsj::train
