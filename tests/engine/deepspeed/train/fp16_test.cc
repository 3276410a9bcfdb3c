// Runs that go on from fp16 checkpoints of DeepSpeed 0.19.8 with a dynamic loss scale (tests/fixtures/ds-fp16, made by
// `scripts/oracle.sh fp16_checkpoint`): the next losses, scales, rates and skipped steps are DeepSpeed's.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "engine/deepspeed/checkpoint.h"
#include "engine/train/state/loading.h"
#include "test_paths.h"
#include "tests/engine/support/bare_deepspeed.h"
#include "tests/engine/support/golden_steps.h"

namespace dsj::train {
namespace {

using nlohmann::json;

const std::filesystem::path kFp16Fixture =
    std::filesystem::path(DSJ_SOURCE_DIR) / "tests/fixtures/ds-fp16";
/// As for every recorded run in fp16 (docs/precision.md): an eighth of bf16's.
constexpr double kFp16LossTolerance = 3e-3 / 8;

class Fp16Checkpoint : public testing::Test {
 protected:
  Fp16Checkpoint() : output_(testing::TempDir() + "fp16_checkpoint_" + std::to_string(getpid())) {}

  testing_support::GoldenRun recorded(int saved_stage) const {
    const std::string stage = std::to_string(saved_stage);
    return {.record = {{"world", 2},
                       {"micro", 2},
                       {"accum", 1},
                       {"ds_config", record_["ds_config"][stage]},
                       {"steps", record_["steps"][stage]}},
            .rows = record_["rows"],
            .model = kFp16Fixture / "model"};
  }
  std::string path(int saved_stage, int64_t saved) const {
    return kFp16Fixture / ("z" + std::to_string(saved_stage)) /
           ("global_step" + std::to_string(saved));
  }
  static int64_t skipped_before(const json& steps, int64_t step) {
    int64_t skipped = 0;
    for (int64_t i = 0; i < step; ++i) skipped += steps[static_cast<size_t>(i)]["skipped"] != 0;
    return skipped;
  }

  /// Goes on at `stage` from what was saved before step `saved`, to the record's end.
  void go_on(int saved_stage, int64_t saved, int stage) const {
    const auto run = recorded(saved_stage);
    json ds_config = run.record["ds_config"];
    ds_config["zero_optimization"] = {{"stage", stage}};
    if (stage >= 2) ds_config.erase("prescale_gradients");  // refused there, and the rule in fp16
    const json& steps = run.record["steps"];
    const auto model = layout::read_model_config(run.model);
    ASSERT_TRUE(model) << model.error().to_string();
    testing_support::run_ranks(run.world(), [&](comm::Collectives& collectives, memory::Ledger&) {
      Inputs in;
      in.model = *model;
      in.job = {.run = "run", .attempt = 1, .output_dir = output_};
      in.job.training.model_name_or_path = run.model;
      in.job.training.resume_from_checkpoint = path(saved_stage, saved);
      in.resolution = dsconfig::resolve(
          ds_config, testing_support::bare_deepspeed(ds_config, std::ssize(steps)),
          {.world_size = run.world()});
      ASSERT_TRUE(in.resolution.runnable());
      zero::ModelState state(in.model, in.config(), at::kCPU, collectives);
      Stepper stepper(in.model, in.config(), {.normalization = testing_support::kBareNormalization},
                      state, at::kCPU);
      PosixFiles files;
      auto search = AgreedSearch::begin(files, in.job, collectives, at::kCPU);
      ASSERT_TRUE(search) << search.error().to_string();
      const auto loaded = Loading(files, in, state, stepper, Events(-1), at::kCPU).load(*search);
      ASSERT_TRUE(loaded) << loaded.error().to_string();
      Progress progress = *loaded;
      ASSERT_EQ(progress.step, saved);
      EXPECT_EQ(progress.skipped, skipped_before(steps, saved));
      EXPECT_EQ(to_json(stepper.loss_scaler().state()),
                record_["scaler"][std::to_string(saved_stage)][std::to_string(saved)]);
      double most = 0;
      for (; progress.step < std::ssize(steps); ++progress.step) {
        const json& theirs = steps[static_cast<size_t>(progress.step)];
        const auto batch = testing_support::golden_batch(run, progress.step, 0, collectives.rank());
        const auto rates = optim::rates_at(in.config(), progress.step - progress.skipped);
        const auto result = stepper.run({.micro_batches = std::span(&batch, 1),
                                         .step = progress.step,
                                         .rates = rates,
                                         .tokens = 1});
        progress.skipped += result.skipped;
        if (collectives.rank() != 0) continue;
        most = std::max(most, std::abs(result.loss / theirs["loss"].get<double>() - 1));
        EXPECT_EQ(result.loss_scale, theirs["loss_scale"].get<double>())
            << "step " << progress.step;
        EXPECT_EQ(result.skipped, theirs["skipped"] != 0) << "step " << progress.step;
        EXPECT_NEAR(rates.lr, theirs["lr"].get<double>(), 1e-12) << "step " << progress.step;
      }
      if (collectives.rank() != 0) return;
      EXPECT_LE(most, kFp16LossTolerance);
      std::printf(
          "result: fp16, saved at stage %d before step %d, at stage %d: %.1e, itself %.1e\n",
          saved_stage, static_cast<int>(saved), stage, most, spread(saved_stage));
    });
  }
  double spread(int saved_stage) const { return record_["spread"][std::to_string(saved_stage)]; }

  const json record_ = testing_support::read_golden(kFp16Fixture / "record.json");
  const std::string output_;
};

TEST_F(Fp16Checkpoint, TheRecordHasWhatAWrongScalerWouldMiss) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    const json steps = recorded(stage).record["steps"];
    const int64_t first = record_["saved"][0];
    EXPECT_EQ(skipped_before(steps, first), first) << "all of them";
    for (const int64_t saved : record_["saved"]) {
      int skipped = 0, grown = 0;
      for (size_t i = static_cast<size_t>(saved) + 1; i < steps.size(); ++i) {
        skipped += steps[i]["skipped"] != 0;
        grown += steps[i]["loss_scale"] > steps[i - 1]["loss_scale"];
      }
      EXPECT_GE(skipped, 2);
      EXPECT_GE(grown, 2);
      const std::string of = std::to_string(stage);
      EXPECT_EQ(record_["scaler"][of][std::to_string(saved)]["hysteresis"], 1) << "used up";
      EXPECT_EQ(record_["ds_config"][of]["fp16"]["hysteresis"], stage > 0 ? 2 : 1);
    }
    EXPECT_LE(spread(stage), kFp16LossTolerance);
  }
}

TEST_F(Fp16Checkpoint, TheNextLossesScalesAndSkipsAreDeepSpeeds) {
  for (const int64_t saved : record_["saved"])
    for (const auto& [saved_stage, stage] :
         {std::pair{0, 0}, {1, 1}, {2, 2}, {3, 3}, {0, 2}, {1, 3}, {3, 0}}) {
      SCOPED_TRACE("saved at stage " + std::to_string(saved_stage) + " before step " +
                   std::to_string(saved) + ", at stage " + std::to_string(stage));
      go_on(saved_stage, saved, stage);
    }
}

}  // namespace
}  // namespace dsj::train
