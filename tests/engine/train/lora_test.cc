// LoRA in whole runs: PEFT's losses at every stage, and that frozen parameters cost nothing but
// their working copy.
#include <gtest/gtest.h>

#include "job/plan/memory_model.h"
#include "job/plan/zero_plan.h"
#include "tests/engine/train/peft_run.h"
#include "tests/engine/train/planned_step.h"

namespace dsj::train {
namespace {

using memory::Class;

struct PeftCase {
  const char* name;
  int stage;
  bool recompute;
};

class Lora : public testing::TestWithParam<PeftCase> {};

TEST_P(Lora, EqualsPeft) {
  const auto& c = GetParam();
  const PeftRun peft(c.name);
  expect_pefts_numbers(peft, peft.small(2, c.stage, c.recompute));
}

std::vector<PeftCase> peft_cases() {
  std::vector<PeftCase> all;
  for (const char* name :
       {"plain", "linear", "saved", "tied", "gpt2", "groups", "vision", "shapes", "edge", "plus",
        "dora", "patterns", "layers", "continued", "experts", "experts-router", "experts-turned"}) {
    for (int stage = 0; stage <= 3; ++stage) {
      for (const bool recompute : {false, true}) all.push_back({name, stage, recompute});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, Lora, testing::ValuesIn(peft_cases()), [](const auto& info) {
  std::string name = info.param.name;
  std::ranges::replace(name, '-', '_');
  return name + "_stage" + std::to_string(info.param.stage) +
         (info.param.recompute ? "_recompute" : "");
});

TEST(LoraRuns, OneRankAndPersistedAdaptersEqualPeft) {
  const PeftRun peft("plain");
  expect_pefts_numbers(peft, peft.small(1, 2, false));
  SmallRun run = peft.small(2, 3, false);
  run.config.zero.param_persistence_threshold = 100'000;  // everything
  expect_pefts_numbers(peft, run);
  run.config.zero.param_persistence_threshold = 400;  // some adapters, norms, biases
  run.config.zero.prefetch_bucket_size = 1;
  run.config.zero.max_reuse_distance = 0;
  run.config.zero.reduce_bucket_size = 100;
  expect_pefts_numbers(peft, run);
}

SmallRun adapters_of_attention(int stage) {
  SmallRun run{.config = small_config(stage), .lora = LoraArgs{.r = 4, .alpha = 8}};
  run.config.zero.param_persistence_threshold = 0;
  return run;
}

TEST(LoraRuns, FrozenParametersHaveNoGradientNoMasterNoMoments) {
  for (const auto precision : {dsconfig::Precision::Fp32, dsconfig::Precision::Bf16}) {
    for (int stage = 0; stage <= 3; ++stage) {
      SmallRun run = adapters_of_attention(stage);
      run.config.precision = run.config.communication_dtype = run.config.grad_accum_dtype =
          precision;
      const auto model = plan::memory_model({.model = fixture_model(run.model),
                                             .config = run.config,
                                             .world = 2,
                                             .lora = resolved_lora(run)});
      measure_ranks(run, [&](Rank& rank, const memory::Ledger& ledger) {
        const comm::Collectives& collectives = rank.collectives;
        const int64_t trained = layout::trainable_numel(rank.state.units());
        int64_t padded = 0;
        for (const auto& flat : rank.state.plan().flats) padded += flat.frozen() ? 0 : flat.numel();
        EXPECT_LT(padded, 1.1 * static_cast<double>(trained));
        EXPECT_EQ(ledger.live(Class::Optimizer), model.bytes.optimizer) << "stage " << stage;
        EXPECT_LE(ledger.live(Class::Optimizer), 12 * padded);
        EXPECT_LE(ledger.peak(Class::Gradients), model.bytes.gradients) << "stage " << stage;
        EXPECT_LE(ledger.peak(Class::Gradients), 4 * 2 * padded);
        // Two ranks: half of every flat travels, at stage 0 there and back.
        EXPECT_EQ(collectives.counters().of(comm::Traffic::Gradients).elements,
                  stage == 0 ? padded : padded / 2);
        if (stage == 1 || stage == 2) {
          EXPECT_EQ(collectives.counters().of(comm::Traffic::Parameters).elements, padded / 2);
        }
        EXPECT_EQ(model.trainable, trained);
      });
    }
  }
}

TEST(LoraRuns, StageThreeReleasesFrozenParameters) {
  testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger& ledger) {
    SmallRun run = adapters_of_attention(3);
    run.config.zero.prefetch_bucket_size = 0;
    run.config.zero.max_reuse_distance = 0;
    Rank rank(run, collectives);
    rank.load(run.model);
    int64_t shards = 0;
    for (const auto& flat : rank.state.plan().flats)
      shards += flat.frozen() ? 4 * flat.shard_numel() : 0;
    EXPECT_EQ(ledger.live(Class::Parameters), shards) << "fp32 shards of the frozen ones";
    ledger.reset_peaks();
    rank.step(0);
    EXPECT_EQ(ledger.live(Class::Parameters), shards);
    EXPECT_EQ(ledger.peak(Class::Parameters), shards + 4 * rank.stepper.schedule().peak_live);
  });
}

TEST(LoraRuns, TheStartDoesNotDependOnTheWorld) {
  std::vector<std::map<std::string, at::Tensor>> starts;
  for (const auto& [world, stage] : {std::pair{1, 0}, {2, 3}, {3, 2}}) {
    SmallRun run = adapters_of_attention(stage);
    run.world = world;
    run.steps = 0;
    starts.push_back(run_small(run).weights);
  }
  int adapters = 0;
  for (const auto& [name, value] : starts[0]) {
    EXPECT_TRUE(value.equal(starts[1].at(name))) << name;
    EXPECT_TRUE(value.equal(starts[2].at(name))) << name;
    adapters += weights::is_adapter_tensor(name);
  }
  EXPECT_EQ(adapters, 8);
}

TEST(LoraRuns, RecomputeDropsTheSameElements) {
  SmallRun run = adapters_of_attention(2);
  run.lora->target_modules = {"q_proj", "v_proj", "down_proj", "gate_proj"};
  const auto without = run_small(run);
  run.lora->dropout = 0.3;
  const auto kept = run_small(run);
  run.recompute = true;
  const auto recomputed = run_small(run);
  EXPECT_EQ(kept.losses, recomputed.losses);
  EXPECT_NE(kept.losses, without.losses);
  for (const auto& [name, value] : kept.weights)
    EXPECT_TRUE(value.equal(recomputed.weights.at(name))) << name;
}

/// Its lengths, the base's products once more, and the scaled gradients are in the plan.
TEST(LoraRuns, DoraStaysWithinItsPlan) {
  for (const int stage : {0, 3}) {
    for (const bool recompute : {false, true}) {
      for (const double dropout : {0.0, 0.1}) {
        SmallRun run = adapters_of_attention(stage);
        run.recompute = recompute;
        run.lora = {.r = 4, .dropout = dropout, .target_pattern = "all-linear", .use_dora = true};
        SCOPED_TRACE("stage " + std::to_string(stage) + (recompute ? ", recompute" : "") +
                     ", dropout " + std::to_string(dropout));
        measure_a_step(run, [&](Rank& rank, const memory::Ledger& ledger) {
          const auto planned = memory_planned(rank, run);
          EXPECT_LE(ledger.peak(Class::Activations), planned.bytes.activations);
          EXPECT_EQ(ledger.peak(Class::Optimizer), planned.bytes.optimizer);
          EXPECT_LE(ledger.peak(Class::Gradients), planned.bytes.gradients);
        });
      }
    }
  }
}

TEST(LoraRuns, StagesAgreeInBf16) {
  std::vector<RunResult> results;
  for (int stage = 0; stage <= 3; ++stage) {
    SmallRun run = adapters_of_attention(stage);
    run.lora->dropout = 0.1;
    run.config.precision = run.config.communication_dtype = run.config.grad_accum_dtype =
        dsconfig::Precision::Bf16;
    results.push_back(run_small(run));
  }
  for (const auto& result : results) {
    for (size_t i = 0; i < result.losses.size(); ++i)
      EXPECT_NEAR(result.losses[i], results[0].losses[i], 3e-4 * result.losses[i]);
  }
}

}  // namespace
}  // namespace dsj::train
