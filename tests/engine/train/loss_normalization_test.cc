// What a step's loss is the mean of, and an epoch's short last step: every stage and kind of run
// against the plain loop (plain_run.h), and one value whoever is dealt the rows.
#include "tests/engine/train/offload_support.h"
#include "tests/engine/train/plain_run.h"

namespace dsj::train {
namespace {

constexpr auto kByToken = dsconfig::LossNormalization::Token;
constexpr auto kByRank = dsconfig::LossNormalization::Rank;
constexpr auto kByMicroBatch = dsconfig::LossNormalization::MicroBatch;

/// Four rows a step. One in three has a third of its targets masked, so that means of means differ.
struct Dealing {
  int world;
  int64_t micro, accumulation;
};
constexpr Dealing kDealings[] = {{1, 4, 1}, {1, 1, 4}, {2, 2, 1}, {2, 1, 2}, {4, 1, 1}};

SmallRun dealt(const Dealing& dealing, int stage) {
  SmallRun run{.world = dealing.world,
               .steps = 3,
               .config = small_config(stage, dealing.micro, dealing.accumulation)};
  // AdamW makes whole steps of gradients that are nothing but rounding. Measured: with 1e-8 a weight of
  // one MLP is 1.06e-4 apart, beyond 1e-4; with 1e-7 none is.
  run.config.optimizer.eps = 1e-7;
  return run;
}

void expect_same_run(const RunResult& got, const RunResult& want, double tolerance) {
  expect_near_steps(got, want, tolerance);
  for (const auto& [name, value] : want.weights) {
    if (name.ends_with("k_proj.bias")) continue;  // its gradient is nothing but rounding
    EXPECT_LT((got.weights.at(name) - value).abs().max().item<double>(), 100 * tolerance) << name;
  }
}

TEST(LossNormalizationRun, EveryDealingOfTheSameRowsIsOneRunByToken) {
  const RunResult want = run_plain(dealt(kDealings[0], 0));
  for (int stage = 0; stage <= 3; ++stage) {
    for (const Dealing& dealing : kDealings) {
      SCOPED_TRACE(::testing::Message() << "stage " << stage << ", " << dealing.world << " ranks x "
                                        << dealing.micro << " x " << dealing.accumulation);
      expect_same_run(run_small(dealt(dealing, stage)), want, 1e-6);
    }
  }
  auto means = dealt({4, 1, 1}, 0);
  means.normalization = kByMicroBatch;
  EXPECT_GT(apart(run_small(means), want), 1e-3) << "this shows nothing";
}

TEST(LossNormalizationRun, TheOtherTwoAreTheMeansOfMeansTheyName) {
  for (const auto normalization : {kByRank, kByMicroBatch}) {
    for (int stage = 0; stage <= 3; ++stage) {
      auto run = dealt({2, 1, 3}, stage);
      run.normalization = normalization;
      expect_same_run(run_small(run), run_plain(run), 1e-6);
    }
  }
  auto ranks = dealt({2, 1, 3}, 0), micro = ranks;
  ranks.normalization = kByRank, micro.normalization = kByMicroBatch;
  EXPECT_GT(apart(run_small(ranks), run_small(micro)), 1e-4) << "this shows nothing";
}

/// Two ranks and four, in every kind of run that treats gradients in its own way. The micro-batches
/// are the same: random-LTD draws for each of them.
TEST(LossNormalizationRun, TwoRanksAndFourAreOneRunOfEveryKind) {
  const ScratchRoot scratch;
  const auto compare = [](const char* kind, int stage, double tolerance,
                          const std::function<void(SmallRun&)>& change) {
    SCOPED_TRACE(kind);
    auto two = dealt({2, 1, 2}, stage), four = dealt({4, 1, 1}, stage);
    change(two), change(four);
    expect_near_steps(run_small(four), run_small(two), tolerance);
  };
  compare("recompute", 3, 1e-6, [](SmallRun& run) { run.recompute = true; });
  compare("LoRA", 2, 1e-6,
          [](SmallRun& run) { run.lora = LoraArgs{.r = 4, .target_pattern = "all-linear"}; });
  compare("sparse gradients", 2, 1e-6, [](SmallRun& run) { run.config.sparse_gradients = true; });
  compare("a loss scale", 2, 2e-3, [](SmallRun& run) {
    run.config.precision = run.config.communication_dtype = run.config.grad_accum_dtype =
        dsconfig::Precision::Fp16;
    run.config.loss_scale = {.initial = 1024, .window = 1000};
  });
  compare("predivided", 2, 1e-6, [](SmallRun& run) { run.config.averaging.predivide = 2; });
  compare("1-bit before it compresses", 0, 1e-6, [](SmallRun& run) {
    run.config.optimizer.kind = dsconfig::OptimizerKind::OneBitAdam;
    run.config.optimizer.freeze_step = 100;
    run.config.optimizer.eps = 1e-7;
    run.config.gradient_clipping = 0;
  });
  compare("random-LTD", 2, 1e-6, [](SmallRun& run) {
    run.config.data_efficiency.random_ltd = dsconfig::RandomLtdConfig{
        .layers = {0, 1}, .min = 8, .max = 24, .require_steps = 40, .tokens_per_step = 2};
  });
  for (const auto device : {OffloadDevice::Cpu, OffloadDevice::Nvme})
    compare("offload", 3, 1e-6, [&](SmallRun& run) {
      const SmallRun away = offloaded(3, device, device, scratch.path());
      run.config.offload = away.config.offload;
      run.host = away.host;
    });
}

/// The step asks the ranks for their targets where nobody has told it; and tells those of the next.
TEST(LossNormalizationRun, ToldTargetsChangeNoBit) {
  const auto run = dealt({2, 1, 2}, 2);
  testing_support::run_ranks(2, [&](comm::Collectives& group, memory::Ledger&) {
    std::vector<double> losses[2];
    for (const bool told : {false, true}) {
      Rank rank(run, group);
      rank.load(run.model);
      std::optional<int64_t> targets;
      for (int64_t step = 0; step < 3; ++step) {
        const auto batches_of = [&](int64_t of) {
          std::vector<models::MicroBatch> batches;
          for (int64_t i = 0; i < 2; ++i)
            batches.push_back(
                micro_batch(of, i, group.rank(), 2, run.config, rank.model.vocab_size));
          return batches;
        };
        const auto batches = batches_of(step);
        StepInput input{.micro_batches = batches, .step = step, .rates = {.lr = 1e-3}};
        if (told) {
          input.targets = targets;
          input.next_targets = [&] {
            int64_t sum = 0;
            for (const auto& batch : batches_of(step + 1)) sum += batch.targets().count;
            return sum;
          };
        }
        const StepResult done = rank.stepper.run(input);
        losses[told].push_back(done.loss);
        targets = done.next_targets;
        EXPECT_EQ(targets.has_value(), told);
        if (told) {
          EXPECT_EQ(*targets, step_targets(step + 1, 2, 2, run.config));
        }
      }
    }
    EXPECT_EQ(losses[0], losses[1]);
  });
}

/// Steps of 3, 1, 3 and 2 micro-steps: an epoch's end takes fewer, and what comes after is not
/// disturbed. Stage 3 gathers by another schedule then, offloaded parameters are read in its order.
TEST(ShortSteps, TrainAsThePlainLoop) {
  const ScratchRoot scratch;
  const auto shorter = [](SmallRun run) {
    run.steps = 6;
    run.config.micro_batch_size = 2;
    run.config.gradient_accumulation_steps = 3;
    run.micro_steps = [](int64_t step) { return step % 2 == 0 ? int64_t{3} : 1 + step % 4 / 2; };
    return run;
  };
  for (const auto normalization : {kByToken, kByRank, kByMicroBatch}) {
    RunResult want;
    for (int stage = 0; stage <= 3; ++stage) {
      auto run = shorter({.config = small_config(stage)});
      run.normalization = normalization;
      if (stage == 0) want = run_plain(run);
      expect_same_run(run_small(run), want, 1e-6);
    }
    if (normalization != kByToken) continue;
    for (const auto device : {OffloadDevice::Cpu, OffloadDevice::Nvme})
      expect_same_run(run_small(shorter(offloaded(3, device, device, scratch.path()))), want, 1e-6);
    auto recomputed = shorter({.recompute = true, .config = small_config(3)});
    recomputed.config.zero.max_reuse_distance = 0;
    expect_same_run(run_small(recomputed), want, 1e-6);
  }
}

}  // namespace
}  // namespace dsj::train
