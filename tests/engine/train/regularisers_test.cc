// Label smoothing, against transformers' Trainer (tests/fixtures/smoothing.oracle.json), dynamic fine-tuning's
// loss, against TRL's SFTTrainer (tests/fixtures/dft.oracle.json), and NEFTune's noise,
// which no library draws alike.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/data/batches/batch.h"
#include "engine/train/step/micro_batch.h"
#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

using nlohmann::json;

class Regularisers : public testing::Test {
 protected:
  void SetUp() override { read("smoothing.oracle.json"); }
  void read(const std::string& name) {
    oracle_ = json::parse(std::ifstream(std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/" + name));
  }
  models::MicroBatch rows(int64_t first, int64_t count) const {
    std::vector<data::Sample> samples;
    for (int64_t i = first; i < first + count; ++i) {
      const json& row = oracle_["rows"][static_cast<size_t>(i % std::ssize(oracle_["rows"]))];
      samples.push_back({row["input_ids"], row["labels"]});
    }
    return on_device(data::collate(samples), at::kCPU);
  }
  struct Seen {
    std::vector<double> losses;
    double after = 0;  ///< of the first two rows, forward only
  };
  Seen run(int world, int stage, const models::TokenLoss& kind, double alpha, uint64_t seed = 0,
           double lr = -1) const {
    auto config = small_config(stage, 2 / world);
    config.optimizer.lr = lr < 0 ? oracle_["learning_rate"].get<double>() : lr;
    config.optimizer.beta2 = 0.999;
    config.optimizer.weight_decay = config.gradient_clipping = 0;
    const layout::ModelConfig model = fixture_model("tiny-llama");
    Seen seen;
    testing_support::run_ranks(world, [&](comm::Collectives& collectives, memory::Ledger&) {
      zero::ModelState state(model, config, at::kCPU, collectives, std::nullopt);
      Stepper stepper(model, config, {.seed = seed, .token_loss = kind, .neftune_alpha = alpha},
                      state, at::kCPU);
      PosixFiles files;
      const auto source = weights::WeightSource::open(files, fixture("tiny-llama"));
      ASSERT_TRUE(source && state.load(*source));
      for (int64_t step = 0; step < 20; ++step) {
        const auto batch = rows(2 * step + (world == 2 ? collectives.rank() : 0), 2 / world);
        const double loss = stepper
                                .run({.micro_batches = {&batch, 1},
                                      .step = step,
                                      .rates = {.lr = config.optimizer.lr}})
                                .loss;
        if (collectives.rank() == 0) seen.losses.push_back(loss);
      }
      const auto found = stepper.evaluate(rows(0, 2));
      if (collectives.rank() == 0)
        seen.after = found.loss_sum.item<double>() / static_cast<double>(found.targets);
    });
    return seen;
  }

  json oracle_;
};

TEST_F(Regularisers, LabelSmoothingIsTrainers) {
  for (const json& one : oracle_["cases"]) {
    for (const auto& [world, stage] : {std::pair{1, 0}, {2, 3}}) {
      const Seen seen = run(world, stage, {.smoothing = one["factor"]}, 0);
      for (size_t i = 0; i < 20; ++i)
        EXPECT_NEAR(seen.losses[i], one["losses"][i].get<double>(), 1e-5)
            << "factor " << one["factor"] << ", stage " << stage << ", step " << i;
      EXPECT_NEAR(seen.after, one["first_rows_loss"].get<double>(), 1e-5)
          << "an evaluation is smoothed, too";
    }
  }
}

TEST_F(Regularisers, DynamicFineTuningIsTrls) {
  read("dft.oracle.json");
  for (const auto& [world, stage] : {std::pair{1, 0}, {2, 1}, {2, 2}, {2, 3}}) {
    const Seen seen = run(world, stage, {.dft = true}, 0);
    for (size_t i = 0; i < 20; ++i)
      EXPECT_NEAR(seen.losses[i], oracle_["losses"][i].get<double>(), 2e-6)
          << "stage " << stage << ", step " << i;
    EXPECT_NEAR(seen.after, oracle_["first_rows_loss"].get<double>(), 2e-6)
        << "an evaluation has the same loss";
  }
}

TEST_F(Regularisers, NeftuneIsDrawnFromTheSeedAndNotInEvaluations) {
  const Seen none = run(1, 0, {}, 0), one = run(1, 0, {}, 5, 7);
  EXPECT_EQ(run(1, 3, {}, 5, 7).losses[0], one.losses[0]) << "the same seed";
  EXPECT_NE(run(1, 0, {}, 5, 8).losses[0], one.losses[0]);
  EXPECT_NE(one.losses[0], none.losses[0]);
  EXPECT_LT(std::abs(one.losses[0] / none.losses[0] - 1), 0.5) << "a small noise";
  // Nothing is learned at rate 0, and an evaluation sees the model without noise.
  const Seen quiet = run(1, 0, {}, 0, 7, 0), loud = run(1, 0, {}, 5, 7, 0);
  EXPECT_EQ(loud.after, quiet.after);
  EXPECT_NE(loud.losses[3], quiet.losses[3]);
}

}  // namespace
}  // namespace dsj::train
