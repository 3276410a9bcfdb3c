// Every stage trains as plain libtorch does, with and without recompute, tied and untied, whatever
// the buckets.
#include <gtest/gtest.h>

#include "tests/engine/train/plain_run.h"

namespace dsj::train {
namespace {

void expect_equal(const RunResult& got, const RunResult& want, double tolerance) {
  expect_near_steps(got, want, tolerance);
  ASSERT_EQ(got.weights.size(), want.weights.size());
  for (const auto& [name, value] : want.weights) {
    // A key's bias moves every score of a query alike: its gradient is nothing but rounding, which
    // AdamW makes a full step.
    if (name.ends_with("k_proj.bias")) continue;
    EXPECT_LT((got.weights.at(name) - value).norm().item<double>(),
              1e-4 * value.norm().item<double>())
        << name;
  }
}

struct StageCase {
  const char* model;
  int stage;
  bool recompute;
};

class Stages : public testing::TestWithParam<StageCase> {};

TEST_P(Stages, EqualPlainLibtorch) {
  const auto& c = GetParam();
  const SmallRun run{
      .model = c.model, .recompute = c.recompute, .config = small_config(c.stage, 2, 2)};
  expect_equal(run_small(run), run_plain(run), 1e-6);
}

std::vector<StageCase> stage_cases() {
  std::vector<StageCase> all;
  for (const char* model : {"tiny-qwen2", "tiny-qwen2-tied"}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const bool recompute : {false, true}) all.push_back({model, stage, recompute});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Stages, testing::ValuesIn(stage_cases()), [](const auto& info) {
  std::string name = std::string(info.param.model) + "_stage" + std::to_string(info.param.stage) +
                     (info.param.recompute ? "_recompute" : "");
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(StageVariants, ThreeRanksSmallBucketsNoPersistence) {
  SmallRun run{.model = "tiny-qwen2-tied", .world = 3, .config = small_config(3, 1, 2)};
  run.config.zero.reduce_bucket_size = 3000;
  run.config.zero.prefetch_bucket_size = 1;
  run.config.zero.max_live_parameters = 20000;
  run.config.zero.max_reuse_distance = 0;
  run.config.zero.param_persistence_threshold = 0;
  expect_equal(run_small(run), run_plain(run), 1e-6);
}

TEST(StageVariants, EverythingPersisted) {
  SmallRun run{.config = small_config(3)};
  run.config.zero.param_persistence_threshold = 1'000'000;
  expect_equal(run_small(run), run_plain(run), 1e-6);
}

TEST(StageVariants, OneRankIsOneRankAtEveryStage) {
  RunResult first;
  for (int stage = 0; stage <= 3; ++stage) {
    const auto result = run_small({.world = 1, .config = small_config(stage)});
    if (stage == 0) first = result;
    EXPECT_EQ(result.losses, first.losses);
  }
}

TEST(StageVariants, SameRunSameBits) {
  const SmallRun run{.config = small_config(3, 2, 2)};
  const auto a = run_small(run), b = run_small(run);
  EXPECT_EQ(a.losses, b.losses);
  for (const auto& [name, value] : a.weights) EXPECT_TRUE(value.equal(b.weights.at(name))) << name;
}

TEST(StageVariants, MicroBatchWithoutTargetCountsZero) {
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    Rank rank({.world = 1, .config = small_config(0)}, collectives);
    rank.load("tiny-qwen2");
    const auto made = micro_batch(0, 0, 0, 1, rank.config, rank.model.vocab_size);
    const models::MicroBatch batch(made.input_ids(), at::full_like(made.labels(), -100),
                                   made.rows());
    const auto result = rank.stepper.run({.micro_batches = {&batch, 1}, .rates = {.lr = 1e-3}});
    EXPECT_EQ(result.loss, 0);
    EXPECT_EQ(result.grad_norm, 0);
  });
}

TEST(Bf16, StagesOneToThreeAgree) {
  std::vector<RunResult> results;
  for (int stage = 0; stage <= 3; ++stage) {
    SmallRun run{.config = small_config(stage)};
    run.config.precision = run.config.communication_dtype = run.config.grad_accum_dtype =
        dsconfig::Precision::Bf16;
    results.push_back(run_small(run));
  }
  for (const auto& result : results) {
    for (size_t i = 0; i < result.losses.size(); ++i) {
      EXPECT_NEAR(result.losses[i], results[0].losses[i], 3e-4 * result.losses[i]);
    }
  }
}

/// LAMB's norms are of whole parameters, wherever their elements lie; the others are per element.
TEST(Optimizers, ShardsDoNotChangeTheUpdate) {
  using enum dsconfig::OptimizerKind;
  for (const auto kind :
       {Lamb, Lion, Sgd, Adagrad, RMSprop, Adadelta, Adamax, NAdam, RAdam, Asgd, Rprop}) {
    std::map<std::string, at::Tensor> first;
    for (int stage = 0; stage <= 3; ++stage) {
      SmallRun run{.config = small_config(stage)};
      run.config.optimizer.kind = kind;
      run.config.optimizer.momentum = 0.9;
      run.config.zero.reduce_bucket_size = 512;  // parameters cut into several chunks
      const auto result = run_small(run);
      if (stage == 0) first = result.weights;
      int64_t apart = 0, all = 0;
      for (const auto& [name, value] : result.weights) {
        if (name.ends_with("k_proj.bias")) continue;  // its gradient is nothing but rounding
        apart += (value - first.at(name)).abs().gt(2e-5).sum().item<int64_t>();
        all += value.numel();
      }
      // A sign turns where a gradient is all rounding: Lion's and Rprop's steps are whole steps.
      const bool signs = kind == Lion || kind == Rprop;
      EXPECT_LE(apart, signs ? all / 100 : 0)
          << name_of(run.config.optimizer) << " at stage " << stage;
    }
  }
}

}  // namespace
}  // namespace dsj::train
