// Random-LTD in whole steps: the losses of a plain loop of the same draw, the same with another
// number of ranks, and no more memory than the plan says. engine/models/unit/kept_tokens.h is the draw.
#include <gtest/gtest.h>

#include <iostream>

#include "engine/models/unit/kept_tokens.h"
#include "job/plan/memory_model.h"
#include "tests/engine/support/golden_steps.h"
#include "tests/engine/train/plain_run.h"

namespace dsj::train {
namespace {

constexpr int64_t kLength = 24;  // of the rows of run_small()

SmallRun dropping(int stage, int world, int64_t accumulation,
                  std::vector<int64_t> layers = {0, 1}) {
  SmallRun run{.world = world, .steps = 8, .config = small_config(stage, 3, accumulation)};
  run.config.data_efficiency.random_ltd = dsconfig::RandomLtdConfig{.layers = std::move(layers),
                                                                    .min = 8,
                                                                    .max = kLength,
                                                                    .require_steps = 6,
                                                                    .tokens_per_step = 2};
  return run;
}

/// The draw of the engine, as [B, k]; undefined: the layer sees all.
at::Tensor kept_of(const SmallRun& run, int64_t layer, int64_t step, int64_t micro_step, int rank) {
  const auto& ltd = *run.config.data_efficiency.random_ltd;
  if (!std::ranges::count(ltd.layers, layer) || ltd.kept(step) >= kLength) return {};
  const int64_t rows = run.config.micro_batch_size;
  const uint64_t key = models::kept_key(0, step, layer, (micro_step * run.world + rank) * rows);
  std::vector<int64_t> all;
  for (int64_t row = 0; row < rows; ++row)
    for (const int64_t token :
         models::draw_tokens(kLength, ltd.kept(step), models::dropout_key(key, row)))
      all.push_back(token);
  return at::tensor(all).view({rows, -1});
}

void expect_near(const RunResult& got, const RunResult& want, double loss) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], loss * want.losses[i]) << "step " << i;
    EXPECT_NEAR(got.norms[i], want.norms[i], 10 * loss * want.norms[i]) << "step " << i;
  }
}

TEST(RandomLtd, APlainLoopOfTheSameDrawHasTheSameLosses) {
  for (const auto& layers : {std::vector<int64_t>{0, 1}, std::vector<int64_t>{1}}) {
    auto run = dropping(0, 2, 2, layers);
    const auto plain = run_plain(
        run,
        [&](int64_t step, int64_t micro, int rank) {
          return micro_batch(step, micro, rank, run.world, run.config,
                             fixture_model(run.model).vocab_size);
        },
        [&](int64_t layer, int64_t step, int64_t micro, int rank) {
          return kept_of(run, layer, step, micro, rank);
        });
    for (int stage = 0; stage <= 3; ++stage) {
      for (const bool recompute : {false, true}) {
        SCOPED_TRACE("stage " + std::to_string(stage) + (recompute ? ", recompute" : ""));
        run.config.zero = small_config(stage).zero;
        run.recompute = recompute;
        expect_near(run_small(run), plain, 1e-5);
      }
    }
    auto whole = run;
    whole.config.data_efficiency = {};
    EXPECT_NE(run_small(whole).losses, run_small(run).losses) << "this shows nothing";
  }
}

/// transformers' layers and torch in Python, given the same draws (tests/oracle/random_ltd_oracle.py).
TEST(RandomLtd, TransformersOfTheSameDrawHasTheSameLosses) {
  const auto oracle = testing_support::read_golden(fixture("random_ltd.oracle.json"));
  const auto rows = testing_support::read_golden(fixture("tiny-qwen2.oracle.json"))["rows"];
  ASSERT_EQ(oracle["runs"].size(), 2u);
  for (const auto& [name, record] : oracle["runs"].items()) {
    const testing_support::GoldenRun run{record, rows, fixture(record["model"])};
    const auto config = run.config();
    ASSERT_TRUE(config.data_efficiency.random_ltd) << name;
    for (int64_t step = 0; step < std::ssize(record["steps"]); ++step)
      EXPECT_EQ(config.data_efficiency.random_ltd->kept(step),
                record["steps"][static_cast<size_t>(step)]["kept"].get<int64_t>());
    const double most = apart(testing_support::repeat(run, config), run);
    std::cout << "golden: random-LTD, " << name << " " << most << std::endl;
    EXPECT_LE(most, 1e-5) << name;
  }
}

TEST(RandomLtd, RecomputeDrawsTheSameToTheBit) {
  for (const char* model : {"tiny-qwen2", "tiny-gpt2"}) {
    auto run = dropping(2, 2, 1);
    run.model = model;
    const auto once = run_small(run);
    run.recompute = true;
    const auto again = run_small(run);
    EXPECT_EQ(once.losses, again.losses) << model;
    EXPECT_EQ(once.norms, again.norms) << model;
  }
}

TEST(RandomLtd, AnotherNumberOfRanksDrawsTheSame) {
  const auto two = run_small(dropping(0, 2, 2)), one = run_small(dropping(0, 1, 4));
  expect_near(one, two, 1e-6);
}

TEST(RandomLtd, AllTokensKeptIsNoRandomLtd) {
  auto run = dropping(2, 2, 1);
  run.config.data_efficiency.random_ltd->min = kLength;
  const auto kept = run_small(run);
  run.config.data_efficiency = {};
  EXPECT_EQ(kept.losses, run_small(run).losses);
}

TEST(RandomLtd, EvaluationSeesEveryToken) {
  std::vector<double> losses;
  for (const bool drops : {true, false}) {
    auto run = dropping(2, 1, 1);
    if (!drops) run.config.data_efficiency = {};
    testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
      Rank rank(run, collectives);
      rank.load(run.model);
      const auto batch = micro_batch(0, 0, 0, 1, run.config, rank.model.vocab_size);
      losses.push_back(rank.stepper.evaluate(batch).loss_sum.item<double>());
    });
  }
  EXPECT_EQ(losses[0], losses[1]);
}

/// The most bytes of activations of one step in which half the tokens are dropped.
struct Peak {
  int64_t measured = 0, planned = 0;
};
Peak peak(bool drops, bool recompute) {
  auto run = dropping(2, 1, 1);
  run.recompute = recompute;
  auto& ltd = *run.config.data_efficiency.random_ltd;
  ltd.min = ltd.max = kLength / 2;
  if (!drops) run.config.data_efficiency = {};
  Peak peak;
  measure_ranks(run, [&](Rank& rank, const memory::Ledger& ledger) {
    peak.measured = ledger.peak(memory::Class::Activations);
    peak.planned = plan::memory_model({.model = rank.model,
                                       .config = run.config,
                                       .world = 1,
                                       .tokens_per_row = kLength,
                                       .recompute = recompute})
                       .bytes.activations;
  });
  return peak;
}

TEST(RandomLtd, ThePlanKnowsTheActivations) {
  for (const bool recompute : {false, true}) {
    const Peak all = peak(false, recompute), half = peak(true, recompute);
    EXPECT_LE(all.measured, all.planned) << "recompute " << recompute;
    EXPECT_LE(half.measured, half.planned) << "recompute " << recompute;
    if (recompute) continue;
    EXPECT_LT(half.measured, all.measured);
    EXPECT_LT(half.planned, all.planned);
  }
}

}  // namespace
}  // namespace dsj::train
