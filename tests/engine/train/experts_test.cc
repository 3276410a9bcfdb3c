// Runs of models with experts: every stage, recompute, pieces, adapters, Muon, sixteen bits, and the
// auxiliary loss over micro-batches and ranks.
#include <algorithm>

#include "engine/train/step/evaluate.h"
#include "job/plan/memory_model.h"
#include "tests/engine/train/planned_step.h"
#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

constexpr const char* kMixtures[] = {
    "tiny-qwen3-moe",    "tiny-qwen3-moe-balanced", "tiny-qwen2-moe",  "tiny-granitemoe",
    "tiny-gpt-oss",      "tiny-deepseek-v2",        "tiny-qwen3-next", "tiny-flex-olmo",
    "tiny-qwen3-vl-moe", "tiny-gemma4-moe"};

SmallRun of(const char* model, int stage, int64_t micro = 2, int64_t accumulation = 1) {
  return {.model = model, .config = small_config(stage, micro, accumulation)};
}

/// One rank: the same bits. Two: gradients are added up in another order.
TEST(ExpertRuns, EveryStageIsOneRun) {
  for (const char* model : kMixtures) {
    SCOPED_TRACE(model);
    for (const int world : {1, 2}) {
      SmallRun run = of(model, 0);
      run.world = world;
      const RunResult whole = run_small(run);
      for (int stage = 0; stage <= 3; ++stage) {
        for (const bool recompute : {false, true}) {
          SCOPED_TRACE(std::to_string(world) + " ranks, stage " + std::to_string(stage) +
                       (recompute ? ", recompute" : ""));
          run.config = small_config(stage);
          run.recompute = recompute;
          const RunResult got = run_small(run);
          if (world == 1)
            EXPECT_EQ(got.losses, whole.losses);
          else
            expect_near_steps(got, whole, 1e-6);
        }
      }
    }
  }
}

TEST(ExpertRuns, PiecesComputeTheSame) {
  for (const char* model : kMixtures) {
    SCOPED_TRACE(model);
    SmallRun run = of(model, 3);
    const RunResult whole = run_small(run);
    run.recompute = true;
    run.pieces = {.piece = 7};
    expect_near_steps(run_small(run), whole, 1e-6);
    run.config.precision = run.config.grad_accum_dtype = run.config.communication_dtype =
        dsconfig::Precision::Bf16;
    expect_near_steps(run_small(run), whole, 0.05);
  }
}

/// The auxiliary loss of a step is the mean of its micro-batches', whoever computes them.
TEST(ExpertRuns, RanksAndMicroStepsAreOneRun) {
  SmallRun ranks = of("tiny-qwen3-moe-balanced", 2, 1, 1), steps = ranks;
  ranks.normalization = steps.normalization = dsconfig::LossNormalization::MicroBatch;
  ranks.world = 2;
  steps.world = 1, steps.config.gradient_accumulation_steps = 2;
  expect_near_steps(run_small(ranks), run_small(steps), 1e-6);
}

TEST(ExpertRuns, TheAuxiliaryLossIsPartOfTheLossAndOfItsGradient) {
  SmallRun with = of("tiny-qwen3-moe-balanced", 0);
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    SmallRun one = with;
    one.world = 1;
    Rank rank(one, collectives);
    rank.load(one.model);
    const auto batch = micro_batch(0, 0, 0, 1, one.config, rank.model.vocab_size);
    const auto balanced = rank.stepper.evaluate(batch);
    rank.model.experts.balance = 0;
    const auto plain = rank.stepper.evaluate(batch);
    const double auxiliary = (balanced.loss_sum.item<double>() - plain.loss_sum.item<double>()) /
                             static_cast<double>(plain.targets);
    // At even loads it is the coefficient times the experts of a token; it cannot be much less.
    EXPECT_GT(auxiliary, 0.2 * 2 * 0.9);
    EXPECT_LT(auxiliary, 0.2 * 6);
  });
}

TEST(ExpertRuns, AdaptersGoOnAttentionAndTheSharedExpert) {
  for (const char* model : kMixtures) {
    SCOPED_TRACE(model);
    SmallRun run = of(model, 0);
    run.lora = LoraArgs{.r = 4, .target_pattern = "all-linear"};
    const RunResult whole = run_small(run);
    EXPECT_NE(whole.losses.front(), whole.losses.back());
    run.config.zero.stage = 3;
    run.recompute = true;
    expect_near_steps(run_small(run), whole, 1e-6);
  }
}

SmallRun adapters_on_experts(const char* model, int stage) {
  SmallRun run = of(model, stage);
  run.lora = LoraArgs{.r = 3, .alpha = 6, .no_modules = true};
  run.lora->target_parameters = {"experts.gate_up_proj", "experts.down_proj"};
  if (std::string_view(model) == "tiny-gpt-oss")
    run.lora->target_parameters.emplace_back("router.weight");
  else if (std::string_view(model) == "tiny-deepseek-v2")
    run.lora->target_parameters.emplace_back("gate.weight");
  return run;
}

TEST(ExpertRuns, AdaptersGoOnTheExperts) {
  for (const char* model : kMixtures) {
    SCOPED_TRACE(model);
    SmallRun run = adapters_on_experts(model, 0);
    const RunResult whole = run_small(run);
    EXPECT_NE(whole.losses.front(), whole.losses.back());
    for (int stage = 1; stage <= 3; ++stage) {
      run.config.zero.stage = stage;
      run.recompute = stage == 3;
      expect_near_steps(run_small(run), whole, 1e-6);
    }
    run.pieces = {.piece = 7};
    expect_near_steps(run_small(run), whole, 1e-6);
    for (const auto precision : {dsconfig::Precision::Bf16, dsconfig::Precision::Fp16}) {
      run.config.precision = run.config.grad_accum_dtype = run.config.communication_dtype =
          precision;
      expect_near_steps(run_small(run), whole, 0.05);
    }
  }
}

TEST(ExpertRuns, AdaptersOnExpertsStayWithinTheirPlan) {
  for (const char* model : {"tiny-qwen3-moe", "tiny-gpt-oss", "tiny-granitemoe"}) {
    for (const int stage : {0, 3}) {
      for (const bool recompute : {false, true}) {
        SCOPED_TRACE(std::string(model) + ", stage " + std::to_string(stage) +
                     (recompute ? ", recompute" : ""));
        SmallRun run = adapters_on_experts(model, stage);
        run.lora->r = 16;
        run.recompute = recompute;
        measure_a_step(run, [&](Rank& rank, const memory::Ledger& ledger) {
          const auto planned = memory_planned(rank, run);
          EXPECT_LE(ledger.peak(memory::Class::Activations), planned.bytes.activations);
          EXPECT_EQ(ledger.peak(memory::Class::Optimizer), planned.bytes.optimizer);
          EXPECT_LE(ledger.peak(memory::Class::Gradients), planned.bytes.gradients);
        });
      }
    }
  }
}

TEST(ExpertRuns, MuonOrthogonalisesEachExpert) {
  for (const char* model : {"tiny-qwen3-moe", "tiny-qwen2-moe"}) {
    SCOPED_TRACE(model);
    SmallRun run = of(model, 0);
    run.config.optimizer.kind = dsconfig::OptimizerKind::Muon;
    const RunResult whole = run_small(run);
    run.config.zero.stage = 2;
    expect_near_steps(run_small(run), whole, 1e-5);
  }
}

}  // namespace
}  // namespace dsj::train
