// Evaluation: its loss against the step's own, its mean over rows and ranks, and that training goes
// on as if it had not been.
#include "engine/train/step/evaluate.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

/// A data file of the first `count` rows of row_ids(), 10 to 13 tokens long.
class Evaluation : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "eval-" + std::to_string(getpid()) + ".json";
    nlohmann::json rows = nlohmann::json::array();
    for (int64_t row = 0; row < 7; ++row) {
      const auto ids = row_ids(row, 10 + row % 4, 100);
      rows.push_back({{"input_ids", ids}, {"labels", ids}});
    }
    std::ofstream(path_) << rows.dump();
    auto opened = data::Dataset::open(path_, nullptr, {.vocab_size = 100});
    ASSERT_TRUE(opened) << opened.error().to_string();
    dataset_ = std::move(*opened);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  EvalResult evaluated(int world, int stage, int64_t batch,
                       dsconfig::LossNormalization normalization, int64_t together = 1) {
    SmallRun run{.world = world, .config = small_config(stage), .normalization = normalization};
    run.config.sequence_parallel_size = together;
    EvalResult result;
    const auto body = [&](comm::Collectives& collectives, memory::Ledger&) {
      Rank rank(run, collectives);
      rank.load(run.model);
      const auto got = evaluate(rank.stepper, collectives, {dataset_.get(), 0, dataset_->rows()},
                                batch, at::kCPU);
      ASSERT_TRUE(got) << got.error().to_string();
      if (collectives.rank() == 0) result = *got;
    };
    testing_support::run_ranks(world, body, "auto", run.splits());
    return result;
  }

  std::string path_;
  std::unique_ptr<data::Dataset> dataset_;
};

TEST_F(Evaluation, LossIsTheStepsOwnOnTheSameRows) {
  for (const bool bf16 : {false, true}) {
    for (const int stage : {0, 3}) {
      SmallRun run{.config = small_config(stage)};
      if (bf16) run.config.precision = run.config.communication_dtype = dsconfig::Precision::Bf16;
      testing_support::run_ranks(run.world, [&](comm::Collectives& collectives, memory::Ledger&) {
        Rank rank(run, collectives);
        rank.load(run.model);
        const auto batch =
            micro_batch(0, 0, collectives.rank(), run.world, run.config, rank.model.vocab_size);
        const auto seen = rank.stepper.evaluate(batch);
        const double own = seen.loss_sum.item<double>() / static_cast<double>(seen.targets);
        const at::Tensor mean = at::full({1}, own, at::kDouble);
        collectives.all_reduce(mean, comm::Op::Sum, {})->wait();
        EXPECT_DOUBLE_EQ(mean.item<double>() / run.world, rank.step(0).loss) << "stage " << stage;
      });
    }
  }
}

TEST_F(Evaluation, MeanOverRowsWhateverTheWorld) {
  constexpr auto kRank = dsconfig::LossNormalization::Rank;
  const EvalResult one = evaluated(1, 0, 2, kRank);
  EXPECT_EQ(one.rows, 7);
  EXPECT_EQ(one.targets, 9 + 10 + 11 + 12 + 9 + 10 + 11);
  EXPECT_NEAR(*one.loss, std::log(100.0), 4.0) << "an untrained model's order of magnitude";
  // Three batches and one of a single row: uneven over two and four ranks.
  for (const int world : {2, 4}) {
    const EvalResult more = evaluated(world, 3, 2, kRank);
    EXPECT_NEAR(*more.loss, *one.loss, 1e-6 * *one.loss) << world;
    EXPECT_EQ(more.targets, one.targets);
    EXPECT_EQ(more.rows, one.rows);
  }
  // A batch of all rows weighs tokens, batches of one row weigh rows: Hugging Face's mean of means.
  EXPECT_NE(evaluated(1, 0, 7, kRank).loss, evaluated(1, 0, 1, kRank).loss);
}

/// By token, ranks side by side are one batch: 1 x 4, 2 x 2 and 4 x 1 rows have one loss.
TEST_F(Evaluation, TheRanksBatchesAreOneByToken) {
  constexpr auto kToken = dsconfig::LossNormalization::Token;
  const EvalResult four = evaluated(1, 0, 4, kToken);
  for (const auto& [world, batch] : {std::pair{2, 2}, {4, 1}}) {
    const EvalResult dealt = evaluated(world, 3, batch, kToken);
    EXPECT_NEAR(*dealt.loss, *four.loss, 1e-6 * *four.loss) << world;
    EXPECT_EQ(dealt.targets, four.targets);
  }
  EXPECT_EQ(evaluated(1, 0, 4, dsconfig::LossNormalization::Rank).loss, four.loss) << "one rank";
  EXPECT_GT(std::abs(evaluated(1, 0, 1, kToken).loss.value() - *four.loss), 1e-4)
      << "this shows nothing";
}

/// sequence_parallel_size: ranks that share a batch count it once.
TEST_F(Evaluation, RanksThatShareABatchAreOne) {
  for (const auto normalization :
       {dsconfig::LossNormalization::Token, dsconfig::LossNormalization::Rank}) {
    for (const auto& [world, together] : {std::pair{2, 2}, {4, 2}, {4, 4}}) {
      const EvalResult want = evaluated(world / together, 3, 2, normalization);
      const EvalResult got = evaluated(world, 3, 2, normalization, together);
      EXPECT_NEAR(*got.loss, *want.loss, 1e-6 * *want.loss) << world << " " << together;
      EXPECT_EQ(got.targets, want.targets);
      EXPECT_EQ(got.rows, want.rows);
      EXPECT_EQ(got.rows_without_target, want.rows_without_target);
    }
  }
}

/// Rows whose prompts fill the length have no loss: not one of 0.
TEST_F(Evaluation, RowsWithoutATargetHaveNoPartInTheMean) {
  const EvalResult all = evaluated(1, 0, 1, dsconfig::LossNormalization::Rank);
  nlohmann::json rows = nlohmann::json::parse(std::ifstream(path_));
  const auto masked = [](nlohmann::json row) {
    for (auto& label : row["labels"]) label = -100;
    return row;
  };
  nlohmann::json mixed = nlohmann::json::array(), none = nlohmann::json::array();
  for (const auto& row : rows) {
    mixed.push_back(masked(row));
    mixed.push_back(row);
    none.push_back(masked(row));
    // The first label is no target either: nothing comes before it.
    none.back()["labels"][0] = row["labels"][0];
  }
  const auto of = [&](const nlohmann::json& data, int world, int64_t batch) {
    std::ofstream(path_) << data.dump();
    dataset_ = std::move(*data::Dataset::open(path_, nullptr, {.vocab_size = 100}));
    return evaluated(world, 0, batch, dsconfig::LossNormalization::Rank);
  };
  for (const int world : {1, 2, 3}) {
    const EvalResult some = of(mixed, world, 1);
    EXPECT_NEAR(*some.loss, *all.loss, 1e-6 * *all.loss) << world;
    EXPECT_EQ(some.rows, 14);
    EXPECT_EQ(some.rows_without_target, 7);
    EXPECT_EQ(some.targets, all.targets);
    // A batch of a row with targets and one without weighs as the one.
    EXPECT_NEAR(*of(mixed, world, 2).loss, *all.loss, 1e-6 * *all.loss) << world;
    const EvalResult nothing = of(none, world, 2);
    EXPECT_FALSE(nothing.loss);
    EXPECT_EQ(nothing.rows_without_target, 7);
  }
}

/// One rank is asked: all stop before the same batch, and training goes on.
TEST_F(Evaluation, AStopEndsItOnAllRanks) {
  SmallRun run{.world = 2, .config = small_config(3)};
  testing_support::run_ranks(run.world, [&](comm::Collectives& collectives, memory::Ledger&) {
    Rank rank(run, collectives);
    rank.load(run.model);
    int asked = 0;
    const auto stop = [&] { return ++asked == 2 && collectives.rank() == 1; };
    const auto got = evaluate(rank.stepper, collectives, {dataset_.get(), 0, 7}, 1, at::kCPU, stop);
    ASSERT_TRUE(got) << got.error().to_string();
    EXPECT_TRUE(got->stopped);
    EXPECT_FALSE(got->loss);
    EXPECT_EQ(asked, 2);
    EXPECT_TRUE(std::isfinite(rank.step(0).loss));
    const auto whole = evaluate(rank.stepper, collectives, {dataset_.get(), 0, 7}, 1, at::kCPU,
                                [] { return false; });
    EXPECT_TRUE(whole->loss && !whole->stopped);
  });
}

TEST_F(Evaluation, NextStepsAreBitIdentical) {
  for (const int stage : {0, 2, 3}) {
    std::vector<double> losses[2];
    for (const bool evaluates : {false, true}) {
      SmallRun run{.config = small_config(stage)};
      run.config.zero.max_reuse_distance = 0;
      testing_support::run_ranks(run.world, [&](comm::Collectives& collectives, memory::Ledger&) {
        Rank rank(run, collectives);
        rank.load(run.model);
        for (int64_t step = 0; step < 4; ++step) {
          const double loss = rank.step(step).loss;
          if (collectives.rank() == 0) losses[evaluates].push_back(loss);
          if (!evaluates) continue;
          ASSERT_TRUE(evaluate(rank.stepper, collectives, {dataset_.get(), 1, 5}, 2, at::kCPU));
        }
      });
    }
    EXPECT_EQ(losses[0], losses[1]) << "stage " << stage;
  }
}

}  // namespace
}  // namespace dsj::train
