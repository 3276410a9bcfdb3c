// Trainer's two groups (job/plan/weight_decay.h): biases and norms have no weight decay, at every stage, by
// every optimizer, in every type, wherever states lie.
#include <gtest/gtest.h>

#include <random>

#include "job/plan/weight_decay.h"
#include "tests/engine/train/plain_run.h"

namespace dsj::train {
namespace {

/// Decay that a group shows at once.
dsconfig::ResolvedConfig grouped(int stage) {
  dsconfig::ResolvedConfig config = small_config(stage);
  config.optimizer.weight_decay = 20;
  config.optimizer.decays_all = false;
  return config;
}

void expect_plain(const SmallRun& run) {
  const RunResult got = run_small(run), want = run_plain(run);
  expect_near_steps(got, want, 1e-6);
  for (const auto& [name, value] : want.weights) {
    // As in stages_test.cc: its gradient is nothing but rounding, which AdamW makes a full step.
    if (name.ends_with("k_proj.bias")) continue;
    EXPECT_LT((got.weights.at(name) - value).norm().item<double>(),
              1e-4 * value.norm().item<double>())
        << name;
  }
}

TEST(WeightDecayGroups, AreThePlainLoopsAtEveryStage) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    SmallRun run{.config = grouped(stage)};
    run.config.zero.reduce_bucket_size = 1000;  // slices that begin and end inside parameters
    expect_plain(run);
    run.config.zero.param_persistence_threshold = stage == 3 ? 1'000'000 : 0;
    expect_plain(run);
  }
}

/// What each group becomes is what a run becomes in which all have its decay: in one step groups do not
/// meet. To the bit, for drawn stages, worlds, buckets and types.
TEST(WeightDecayGroups, EachParameterIsUpdatedAsByItsGroupAlone) {
  using enum dsconfig::OptimizerKind;
  std::mt19937 random(30);
  const auto draw = [&](int below) {
    return std::uniform_int_distribution<>(0, below - 1)(random);
  };
  const dsconfig::OptimizerKind kinds[] = {Adam, Sgd, Adagrad, RMSprop, Lion};
  int left = 0, taken = 0;
  for (int round = 0; round < 12; ++round) {
    SmallRun run{.world = 1 + draw(2), .steps = 1, .config = grouped(draw(4))};
    run.config.optimizer.kind = kinds[round % 5];
    run.config.zero.reduce_bucket_size = 64 << draw(8);
    if (draw(2) == 1)
      run.config.precision = run.config.communication_dtype = dsconfig::Precision::Bf16;
    SCOPED_TRACE(
        "stage " + std::to_string(run.config.zero.stage) + ", world " + std::to_string(run.world) +
        ", bucket " + std::to_string(run.config.zero.reduce_bucket_size) + ", " +
        dsconfig::name_of(run.config.precision) + ", " + dsconfig::name_of(run.config.optimizer));
    const RunResult groups = run_small(run);
    run.config.optimizer.decays_all = true;
    const RunResult all = run_small(run);
    run.config.optimizer.weight_decay = 0;
    const RunResult none = run_small(run);
    for (const auto& [name, value] : groups.weights) {
      const bool decays = plan::is_decayed(name);
      EXPECT_TRUE(value.equal((decays ? all : none).weights.at(name))) << name;
      ++(decays ? taken : left);
    }
  }
  EXPECT_GT(left, 100);
  EXPECT_GT(taken, 100);
}

TEST(WeightDecayGroups, AdaptersHaveWeightDecay) {
  SmallRun run{.world = 1, .steps = 1, .config = grouped(2), .lora = LoraArgs{.r = 4}};
  const RunResult groups = run_small(run);
  run.config.optimizer.decays_all = true;
  const RunResult all = run_small(run);
  for (const auto& [name, value] : groups.weights)
    EXPECT_TRUE(value.equal(all.weights.at(name))) << name;
}

}  // namespace
}  // namespace dsj::train
