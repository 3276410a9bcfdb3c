// Dropout in training: what it drops is decided by seed, step and unit, so recompute repeats it,
// and the gradient is the gradient of what was left.
#include <gtest/gtest.h>

#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

struct DropoutSetting {
  uint64_t seed = 1;
  bool recompute = false;
  double p = 0.2;
  int stage = 0, world = 1;
};

class DropoutRun : public testing::TestWithParam<const char*> {
 protected:
  /// Loss of one batch after each update with these rates; the step's number stays 5.
  std::vector<StepResult> run(const DropoutSetting& setting, const std::vector<double>& rates,
                              int64_t step_number = 5) {
    std::vector<StepResult> results;
    testing_support::run_ranks(setting.world, [&](comm::Collectives& collectives, memory::Ledger&) {
      layout::ModelConfig model = fixture_model(GetParam());
      model.dropout = {.embedding = setting.p, .attention = setting.p, .residual = setting.p};
      auto config = small_config(setting.stage, 2);
      config.optimizer = {.kind = dsconfig::OptimizerKind::Sgd};
      config.gradient_clipping = 0;
      zero::ModelState state(model, config, at::kCPU, collectives);
      PosixFiles files;
      ASSERT_TRUE(state.load(*weights::WeightSource::open(files, fixture(GetParam()))));
      Stepper stepper(model, config, {.recompute = setting.recompute, .seed = setting.seed}, state,
                      at::kCPU);
      const auto batch =
          micro_batch(0, 0, collectives.rank(), setting.world, config, model.vocab_size, 12);
      for (const double lr : rates) {
        const auto result =
            stepper.run({.micro_batches = {&batch, 1}, .step = step_number, .rates = {.lr = lr}});
        if (collectives.rank() == 0) results.push_back(result);
      }
    });
    return results;
  }
  double loss(const DropoutSetting& setting, int64_t step_number = 5) {
    return run(setting, {0.0}, step_number).at(0).loss;
  }
};

TEST_P(DropoutRun, IsKeyedBySeedAndStep) {
  EXPECT_EQ(loss({}), loss({}));
  EXPECT_NE(loss({}), loss({.seed = 2}));
  EXPECT_NE(loss({}), loss({}, 6));
  EXPECT_NE(loss({}), loss({.p = 0}));
}

TEST_P(DropoutRun, RecomputeAndStagesDropTheSame) {
  const std::vector<double> rates(3, 1e-2);
  for (const int stage : {0, 3}) {
    const auto kept = run({.stage = stage, .world = 2}, rates);
    const auto again = run({.recompute = true, .stage = stage, .world = 2}, rates);
    const auto whole = run({.world = 2}, rates);
    ASSERT_EQ(kept.size(), rates.size());
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(kept[i].loss, again[i].loss) << i;
      EXPECT_EQ(kept[i].grad_norm, again[i].grad_norm) << i;
      EXPECT_NEAR(kept[i].loss, whole[i].loss, 1e-6 * whole[i].loss) << i;
    }
  }
}

TEST_P(DropoutRun, TheGradientIsOfWhatWasLeft) {
  // One plain gradient step down and one up, under the same mask: the slope between them is the
  // squared norm of the gradient.
  const double lr = 2e-4;
  const auto down = run({}, {lr, 0.0}), up = run({}, {-lr, 0.0});
  const double norm = down[0].grad_norm;
  EXPECT_NEAR((up[1].loss - down[1].loss) / (2 * lr * norm * norm), 1.0, 2e-3);
}

INSTANTIATE_TEST_SUITE_P(Models, DropoutRun, testing::Values("tiny-gpt2", "tiny-llama"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace dsj::train
