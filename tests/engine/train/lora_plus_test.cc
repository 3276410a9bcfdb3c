// LoRA+ (job/plan/lora_plus.h) beside runs whose rate is one for all. PEFT's own losses: lora_test.cc.
#include <gtest/gtest.h>

#include <random>

#include "job/plan/lora_plus.h"
#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

/// In one step groups do not meet: a raised parameter becomes what it becomes in a run whose rate is the
/// raised one, every other what it becomes without LoRA+. To the bit, for drawn stages, worlds, buckets,
/// types, optimizers and ratios.
TEST(LoraPlus, EachParameterIsUpdatedAsByARunAtItsRate) {
  using enum dsconfig::OptimizerKind;
  std::mt19937 random(41);
  const auto draw = [&](int below) {
    return std::uniform_int_distribution<>(0, below - 1)(random);
  };
  const dsconfig::OptimizerKind kinds[] = {Adam, Sgd, Adagrad, RMSprop, Lion};
  int raised = 0, plain = 0;
  for (int round = 0; round < 12; ++round) {
    SmallRun run{.world = 1 + draw(2),
                 .steps = 1,
                 .config = small_config(draw(4)),
                 .lora = LoraArgs{.r = 4, .modules_to_save = {"norm", "lm_head"}}};
    run.config.optimizer.kind = kinds[round % 5];
    run.config.optimizer.eight_bit = round % 5 == 0 && draw(2) == 1;
    run.config.optimizer.weight_decay = 2;
    run.config.optimizer.decays_all = draw(2) == 1;
    run.config.zero.reduce_bucket_size = 64 << draw(8);
    run.config.zero.param_persistence_threshold = draw(2) * 100'000;
    if (draw(2) == 1)
      run.config.precision = run.config.communication_dtype = dsconfig::Precision::Bf16;
    const double ratio = 2 << draw(4);
    SCOPED_TRACE("round " + std::to_string(round) + ", stage " +
                 std::to_string(run.config.zero.stage) + ", " +
                 dsconfig::name_of(run.config.optimizer));
    const RunResult low = run_small(run);
    run.config.optimizer.lora_plus_ratio = ratio;
    const RunResult plus = run_small(run);
    run.config.optimizer.lora_plus_ratio = 1;
    run.config.optimizer.lr *= ratio;
    const RunResult high = run_small(run);
    for (const auto& [name, value] : plus.weights) {
      const layout::Slot slot{.name = name, .shape = value.sizes().vec()};
      const bool up = plan::has_raised_rate(slot);
      EXPECT_TRUE(value.equal((up ? high : low).weights.at(name))) << name;
      if (!low.weights.at(name).equal(high.weights.at(name))) ++(up ? raised : plain);
    }
  }
  EXPECT_GT(raised, 100);
  EXPECT_GT(plain, 50);
}

}  // namespace
}  // namespace dsj::train
