// Resume: bit-identical at the same world size; within 1e-6 at another world size or stage.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <utility>

#include "engine/checkpoint/search.h"
#include "engine/checkpoint/writer.h"
#include "engine/train/state/saving.h"
#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

/// A temporary checkpoints directory.
class Resume : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    directory_ = testing::TempDir() + "resume_" + info->name() + "_" + std::to_string(getpid());
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static void save(Rank& rank, const std::string& directory, int64_t step) {
    PosixFiles files;
    const checkpoint::WriteOptions options{.checkpoints_dir = directory,
                                           .step = step,
                                           .rank = rank.collectives.rank(),
                                           .world = rank.collectives.world()};
    const auto written = checkpoint::write_rank_from(
        files, options,
        [&](const checkpoint::EmitPiece& emit) { return rank.state.for_pieces(emit); });
    ASSERT_TRUE(written) << written.error().to_string();
    rank.collectives.barrier({})->wait();
    if (options.rank == 0) {
      const auto published = checkpoint::publish(
          files, options,
          {.extents = rank.state.extents(),
           .run_state = {{"updates", rank.stepper.updates()},
                         {"loss_scaler", to_json(rank.stepper.loss_scaler().state())}}});
      ASSERT_TRUE(published) << published.error().to_string();
    }
    rank.collectives.barrier({})->wait();
  }

  static void load(Rank& rank, const std::string& directory, const SmallRun& run) {
    PosixFiles files;
    const auto base = weights::WeightSource::open(files, fixture(run.model));
    ASSERT_TRUE(base && rank.state.load_frozen(*base));
    auto newest = checkpoint::newest(files, directory);
    ASSERT_TRUE(newest && newest->reader);
    rank.stepper.set_updates(newest->reader->run_state()["updates"]);
    rank.stepper.set_loss_scaler(loss_scaler_state(newest->reader->run_state()["loss_scaler"]));
    const auto restored = rank.state.restore(*newest->reader);
    ASSERT_TRUE(restored) << restored.error().to_string();
  }

  /// Steps [first, last) of `run`; from the checkpoint if first > 0; saved at `last` if `saves`.
  std::vector<double> losses(const SmallRun& run, int64_t first, int64_t last, bool saves) {
    std::vector<double> out;
    testing_support::run_ranks(run.world, [&](comm::Collectives& collectives, memory::Ledger&) {
      Rank rank(run, collectives);
      first == 0 ? rank.load(run.model) : load(rank, directory_, run);
      for (int64_t step = first; step < last; ++step) {
        const double loss = rank.step(step).loss;
        if (collectives.rank() == 0) out.push_back(loss);
      }
      if (saves) save(rank, directory_, last);
    });
    return out;
  }

  std::string directory_;
};

SmallRun small_on(int world, int stage, dsconfig::Precision precision = dsconfig::Precision::Fp32) {
  // Global batch 8 and the same micro-batches whatever the world: the loss is a mean of their
  // means.
  SmallRun run{
      .model = "tiny-qwen2-tied", .world = world, .config = small_config(stage, 2, 4 / world)};
  run.config.precision = run.config.communication_dtype = run.config.grad_accum_dtype = precision;
  // fp16: doubled every few steps, to overflows and back; the steps before the save count.
  run.config.loss_scale = {.initial = std::ldexp(1.0, 16), .window = 2, .hysteresis = 2};
  return run;
}

TEST_F(Resume, NextTwentyLossesAreBitIdentical) {
  using dsconfig::Precision;
  for (const auto precision : {Precision::Fp32, Precision::Bf16, Precision::Fp16}) {
    for (int stage = 0; stage <= 3; ++stage) {
      std::filesystem::remove_all(directory_);
      const auto run = small_on(2, stage, precision);
      const auto whole = losses(run, 0, 23, false);
      losses(run, 0, 3, true);
      const auto resumed = losses(run, 3, 23, false);
      EXPECT_EQ(std::vector<double>(whole.begin() + 3, whole.end()), resumed) << "stage " << stage;
    }
  }
}

TEST_F(Resume, OnABaseInFourBits) {
  for (const int stage : {0, 1, 2}) {
    for (const auto precision : {dsconfig::Precision::Fp32, dsconfig::Precision::Bf16}) {
      std::filesystem::remove_all(directory_);
      auto run = small_on(2, stage, precision);
      run.lora = LoraArgs{.r = 4, .target_pattern = "all-linear"};
      run.lora->load_in_4bit = run.lora->double_quant = true;
      const auto whole = losses(run, 0, 13, false);
      losses(run, 0, 3, true);
      const auto resumed = losses(run, 3, 13, false);
      EXPECT_EQ(std::vector<double>(whole.begin() + 3, whole.end()), resumed) << "stage " << stage;
    }
  }
}

TEST_F(Resume, UnderAutocast) {
  for (const auto products : {dsconfig::Precision::Bf16, dsconfig::Precision::Fp16}) {
    std::filesystem::remove_all(directory_);
    auto run = small_on(2, products == dsconfig::Precision::Bf16 ? 3 : 1);
    run.config.autocast = {products, {"torch.nn.Linear"}};
    run.config.loss_scale = {.window = 4, .hysteresis = 1, .like_torch = true};
    const auto whole = losses(run, 0, 23, false);
    losses(run, 0, 3, true);
    const auto resumed = losses(run, 3, 23, false);
    EXPECT_EQ(std::vector<double>(whole.begin() + 3, whole.end()), resumed);
  }
}

TEST_F(Resume, RandomLtdGoesOnWithTheSameDraws) {
  for (const bool recompute : {false, true}) {
    std::filesystem::remove_all(directory_);
    auto run = small_on(2, 2);
    run.recompute = recompute;
    run.config.data_efficiency.random_ltd = dsconfig::RandomLtdConfig{
        .layers = {0, 1}, .min = 8, .max = 24, .require_steps = 40, .tokens_per_step = 2};
    const auto whole = losses(run, 0, 27, false);
    losses(run, 0, 7, true);
    const auto resumed = losses(run, 7, 27, false);
    EXPECT_EQ(std::vector<double>(whole.begin() + 7, whole.end()), resumed);
  }
}

TEST_F(Resume, EveryStateOfOtherOptimizersComesBack) {
  using enum dsconfig::OptimizerKind;
  for (const auto kind : {Sgd, Lamb, RMSprop, Rprop, NAdam, Asgd}) {
    std::filesystem::remove_all(directory_);
    auto run = small_on(2, 2);
    run.config.optimizer.kind = kind;
    run.config.optimizer.momentum = 0.9;
    run.config.optimizer.centered = true;
    const auto whole = losses(run, 0, 8, false);
    losses(run, 0, 3, true);
    const auto resumed = losses(run, 3, 8, false);
    EXPECT_EQ(std::vector<double>(whole.begin() + 3, whole.end()), resumed)
        << name_of(run.config.optimizer);
  }
}

TEST_F(Resume, MuonGoesOnAtEveryStageAndAnyWorld) {
  const auto muon = [](int world, int stage,
                       dsconfig::Precision precision = dsconfig::Precision::Fp32) {
    auto run = small_on(world, stage, precision);
    run.config.optimizer.kind = dsconfig::OptimizerKind::Muon;
    run.config.optimizer.momentum = 0.9;
    return run;
  };
  for (int stage = 0; stage <= 3; ++stage) {
    std::filesystem::remove_all(directory_);
    const auto run =
        muon(2, stage, stage == 1 ? dsconfig::Precision::Bf16 : dsconfig::Precision::Fp32);
    const auto whole = losses(run, 0, 9, false);
    losses(run, 0, 3, true);
    EXPECT_EQ(std::vector<double>(whole.begin() + 3, whole.end()), losses(run, 3, 9, false))
        << "stage " << stage;
    if (stage != 2) continue;
    const auto one = losses(muon(1, 0), 3, 6, true);
    const auto four = losses(muon(4, 3), 6, 9, false);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(one[i], whole[3 + i], 1e-5 * whole[3 + i]);
      EXPECT_NEAR(four[i], whole[6 + i], 1e-5 * whole[6 + i]);
    }
  }
}

TEST_F(Resume, MastersAndStatesOfSixteenBitsComeBack) {
  for (const int stage : {1, 3}) {
    std::filesystem::remove_all(directory_);
    auto run = small_on(2, stage, dsconfig::Precision::Bf16);
    run.config.master_dtype = run.config.state_dtype = dsconfig::Precision::Bf16;
    const auto whole = losses(run, 0, 9, false);
    losses(run, 0, 3, true);
    EXPECT_EQ(std::vector<double>(whole.begin() + 3, whole.end()), losses(run, 3, 9, false))
        << "stage " << stage;
  }
}

/// OneBitAdam, which compresses from its fourth step on.
SmallRun one_bit_on(int world, int stage,
                    dsconfig::Precision precision = dsconfig::Precision::Fp32) {
  auto run = small_on(world, stage, precision);
  run.config.optimizer.kind = dsconfig::OptimizerKind::OneBitAdam;
  run.config.optimizer.freeze_step = 3;
  run.config.optimizer.eps = 1e-3;
  return run;
}

/// Local steps begin after 6 steps in fp32, after 5 in 16 bits; their intervals are 1, 2 and 4.
SmallRun zero_one(int world, int stage, dsconfig::Precision precision = dsconfig::Precision::Fp32) {
  auto run = one_bit_on(world, stage, precision);
  run.config.optimizer.kind = dsconfig::OptimizerKind::ZeroOneAdam;
  run.config.optimizer.var_freeze_step = 5;
  run.config.optimizer.var_update_scaler = run.config.optimizer.local_step_scaler = 2;
  run.config.optimizer.local_step_clipper = 4;
  return run;
}

TEST_F(Resume, WhatOneBitLambKeepsComesBack) {
  using dsconfig::Precision;
  for (const auto precision : {Precision::Fp32, Precision::Bf16}) {
    for (const int stage : {0, 1}) {
      auto run = one_bit_on(2, stage, precision);
      run.config.optimizer.kind = dsconfig::OptimizerKind::OneBitLamb;
      run.config.optimizer.weight_decay = 0.01;
      const auto whole = losses(run, 0, 12, false);
      for (const int64_t saved : {2, 3, 6}) {  // before the freeze, at it, and behind it
        std::filesystem::remove_all(directory_);
        losses(run, 0, saved, true);
        EXPECT_EQ(std::vector<double>(whole.begin() + saved, whole.end()),
                  losses(run, saved, 12, false))
            << "stage " << stage << " saved at " << saved;
      }
    }
  }
}

/// The coefficients belong to parameters and come along; one rank has no errors to drop.
TEST_F(Resume, OneBitLambGoesOnAtAnotherWorld) {
  const auto lamb = [](int world) {
    auto run = one_bit_on(world, 0);
    run.config.optimizer.kind = dsconfig::OptimizerKind::OneBitLamb;
    return run;
  };
  losses(lamb(2), 0, 6, true);
  const auto same = losses(lamb(2), 6, 8, false);
  for (const int world : {1, 4}) {
    const auto others = losses(lamb(world), 6, 8, false);
    EXPECT_NEAR(others[0], same[0], 1e-6 * same[0]) << "the same weights";
    EXPECT_NEAR(others[1], same[1], 1e-2 * same[1]) << "and coefficients";
  }
}

TEST_F(Resume, CompressionErrorsComeBack) {
  using dsconfig::Precision;
  for (const auto precision : {Precision::Fp32, Precision::Bf16, Precision::Fp16}) {
    for (const int stage : {0, 1}) {
      for (const int64_t saved : {2, 6}) {  // before the freeze, and behind it
        std::filesystem::remove_all(directory_);
        const auto run = one_bit_on(2, stage, precision);
        const auto whole = losses(run, 0, 14, false);
        losses(run, 0, saved, true);
        const auto resumed = losses(run, saved, 14, false);
        EXPECT_EQ(std::vector<double>(whole.begin() + saved, whole.end()), resumed)
            << "stage " << stage << " saved at " << saved;
      }
    }
  }
}

TEST_F(Resume, RanksOfZeroOneAdamComeBackApart) {
  using dsconfig::Precision;
  for (const auto& [precision, stage] :
       {std::pair{Precision::Fp32, 0}, std::pair{Precision::Fp32, 1}, std::pair{Precision::Bf16, 0},
        std::pair{Precision::Bf16, 1}}) {
    const auto run = zero_one(2, stage, precision);
    const auto whole = losses(run, 0, 20, false);
    // Before the freeze, at it, apart, and at 16, a count of 4 h: the ranks have met.
    for (const int64_t saved : {4, 7, 9, 13, 16}) {
      std::filesystem::remove_all(directory_);
      losses(run, 0, saved, true);
      const auto resumed = losses(run, saved, 20, false);
      EXPECT_EQ(std::vector<double>(whole.begin() + saved, whole.end()), resumed)
          << "stage " << stage << " saved at " << saved;
    }
  }
}

/// Masters and momenta of each rank go from stage to stage.
TEST_F(Resume, ZeroOneAdamGoesOnAtTheOtherStage) {
  for (const int from : {0, 1}) {
    for (const int64_t saved : {4, 13}) {
      std::filesystem::remove_all(directory_);
      losses(zero_one(2, from), 0, saved, true);
      EXPECT_EQ(losses(zero_one(2, 0), saved, 20, false), losses(zero_one(2, 1), saved, 20, false))
          << "from stage " << from << " saved at " << saved;
    }
  }
}

/// A damaged checkpoint of ranks that are apart, and an older one from before the freeze instead: what was
/// made whole for the first is sharded for the second.
TEST_F(Resume, ZeroOneAdamComesBackFromBeforeItsFreeze) {
  const auto run = zero_one(2, 1);
  const auto whole = losses(run, 0, 20, false);
  const std::string early = directory_ + "/early", late = directory_ + "/late";
  for (const auto& [path, saved] : {std::pair{early, int64_t{4}}, std::pair{late, int64_t{13}}}) {
    const std::string kept = std::exchange(directory_, path);
    losses(run, 0, saved, true);
    directory_ = kept;
  }
  std::vector<double> resumed;
  testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger&) {
    Rank rank(run, collectives);
    load(rank, late, run);
    load(rank, early, run);
    for (int64_t step = 4; step < 20; ++step) {
      const double loss = rank.step(step).loss;
      if (collectives.rank() == 0) resumed.push_back(loss);
    }
  });
  EXPECT_EQ(std::vector<double>(whole.begin() + 4, whole.end()), resumed);
}

TEST_F(Resume, CompressionErrorsOfAnotherWorldStartAtZero) {
  const auto dropped = [&](const SmallRun& run) {
    bool all = true;
    testing_support::run_ranks(run.world, [&](comm::Collectives& collectives, memory::Ledger&) {
      Rank rank(run, collectives);
      load(rank, directory_, run);
      const double loss = rank.step(6).loss;
      EXPECT_TRUE(std::isfinite(loss));
      if (collectives.rank() == 0) all = !rank.state.update_method().dropped().empty();
    });
    return all;
  };
  losses(one_bit_on(2, 0), 0, 6, true);
  EXPECT_FALSE(dropped(one_bit_on(2, 0)));
  EXPECT_FALSE(dropped(one_bit_on(2, 1))) << "the stage does not matter";
  EXPECT_TRUE(dropped(one_bit_on(4, 0)));
  EXPECT_TRUE(dropped(one_bit_on(2, 0, dsconfig::Precision::Bf16))) << "other vectors";
}

TEST_F(Resume, AnotherOptimizerNamesTheStateThatIsMissing) {
  losses(small_on(1, 0), 0, 1, true);
  auto run = small_on(1, 0);
  run.config.optimizer.kind = dsconfig::OptimizerKind::Adagrad;
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    Rank rank(run, collectives);
    PosixFiles files;
    auto newest = checkpoint::newest(files, directory_);
    ASSERT_TRUE(newest && newest->reader);
    const auto restored = rank.state.restore(*newest->reader);
    ASSERT_FALSE(restored);
    const std::string said = restored.error().to_string();
    EXPECT_NE(said.find("\"sum\""), std::string::npos) << said;
    EXPECT_NE(said.find("Adagrad"), std::string::npos) << said;
  });
}

TEST_F(Resume, TwoRanksThenOneThenFour) {
  const auto whole = losses(small_on(2, 2), 0, 9, false);
  losses(small_on(2, 2), 0, 3, true);
  const auto one = losses(small_on(1, 2), 3, 6, true);
  const auto four = losses(small_on(4, 2), 6, 9, false);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(one[i], whole[3 + i], 1e-6 * whole[3 + i]);
    EXPECT_NEAR(four[i], whole[6 + i], 1e-6 * whole[6 + i]);
  }
}

TEST_F(Resume, LoraWithDropoutIsBitIdentical) {
  for (int stage = 0; stage <= 3; ++stage) {
    std::filesystem::remove_all(directory_);
    SmallRun run =
        small_on(2, stage, stage % 2 == 1 ? dsconfig::Precision::Bf16 : dsconfig::Precision::Fp32);
    run.lora = {.r = 4, .dropout = 0.2, .target_pattern = "all-linear"};
    const auto whole = losses(run, 0, 10, false);
    losses(run, 0, 3, true);
    const auto resumed = losses(run, 3, 10, false);
    EXPECT_EQ(std::vector<double>(whole.begin() + 3, whole.end()), resumed) << "stage " << stage;
  }
}

TEST_F(Resume, LoraTwoRanksThenOne) {
  SmallRun two = small_on(2, 3), one = small_on(1, 0);
  two.lora = one.lora = {.r = 4, .target_modules = {"q_proj", "up_proj"}};
  const auto whole = losses(two, 0, 6, false);
  losses(two, 0, 3, true);
  const auto rest = losses(one, 3, 6, false);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(rest[i], whole[3 + i], 1e-6 * whole[3 + i]);
}

TEST_F(Resume, StageTwoThenThree) {
  const auto whole = losses(small_on(2, 2), 0, 6, false);
  losses(small_on(2, 2), 0, 3, true);
  const auto three = losses(small_on(2, 3), 3, 6, false);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(three[i], whole[3 + i], 1e-6 * whole[3 + i]);
}

}  // namespace
}  // namespace dsj::train
