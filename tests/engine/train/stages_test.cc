// Every stage trains as plain libtorch does, with and without recompute, tied and untied, whatever
// the buckets.
#include <gtest/gtest.h>

#include "tests/engine/support/plain_qwen2.h"
#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

/// Losses of the plain loop on the same global batches: mean over the micro-batches of all ranks.
RunResult run_plain(const SmallRun& run) {
  RunResult result;
  std::map<std::string, at::Tensor> values;
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    SmallRun one = run;
    one.config.zero.stage = 0;
    Rank rank(one, collectives);
    rank.load(run.model);
    memory::MemoryScope outside(memory::Class::Activations, memory::process_ledger());
    rank.state.visit_weights(
        [&](const layout::Slot& slot, const at::Tensor& v) { values[slot.name] = v.clone(); });
  });
  const auto model = fixture_model(run.model);
  testing_support::PlainQwen2 plain(model, values);
  const auto& o = run.config.optimizer;
  const int64_t parts = run.world * run.config.gradient_accumulation_steps;
  for (int64_t step = 0; step < run.steps; ++step) {
    double loss = 0;
    for (int64_t micro = 0; micro < run.config.gradient_accumulation_steps; ++micro) {
      for (int rank = 0; rank < run.world; ++rank) {
        const auto batch = micro_batch(step, micro, rank, run.world, run.config, model.vocab_size);
        const at::Tensor part =
            plain.loss(batch.input_ids, batch.labels) / static_cast<double>(parts);
        part.backward();
        loss += part.item<double>();
      }
    }
    result.losses.push_back(loss);
    result.norms.push_back(
        plain.step(o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, run.config.gradient_clipping));
  }
  for (const auto& [name, value] : plain.weights()) result.weights[name] = value.detach();
  return result;
}

void expect_equal(const RunResult& got, const RunResult& want, double tolerance) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], tolerance * want.losses[i]) << "step " << i;
    EXPECT_NEAR(got.norms[i], want.norms[i], 10 * tolerance * want.norms[i]) << "step " << i;
  }
  ASSERT_EQ(got.weights.size(), want.weights.size());
  for (const auto& [name, value] : want.weights) {
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

std::vector<StageCase> cases() {
  std::vector<StageCase> all;
  for (const char* model : {"tiny-qwen2", "tiny-qwen2-tied"}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const bool recompute : {false, true}) all.push_back({model, stage, recompute});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Stages, testing::ValuesIn(cases()), [](const auto& info) {
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
    auto batch = micro_batch(0, 0, 0, 1, rank.config, rank.model.vocab_size);
    batch.labels.fill_(-100);
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

}  // namespace
}  // namespace dsj::train
