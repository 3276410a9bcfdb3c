// Recorded runs of DeepSpeed, repeated step by step: those that scripts/golden_table.py cannot make
// with `dsj run`, because gradients were made to overflow, and those of the 1-bit optimizers, whose
// tolerance is measured beside them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "common/files/posix_files.h"
#include "engine/optim/lr_schedule.h"
#include "engine/train/step/step.h"
#include "engine/weights/weight_source.h"
#include "job/dsconfig/resolve.h"
#include "test_paths.h"
#include "tests/engine/support/bare_deepspeed.h"
#include "tests/engine/support/golden_steps.h"
#include "tests/engine/support/poisoned.h"

namespace dsj::train {
namespace {

using nlohmann::json;
using testing_support::golden_directory;

/// The steps in "overflow injected at steps [3,4]".
std::set<int64_t> injected_steps(const json& golden) {
  for (const auto& patch : golden["patched"]) {
    const std::string text = patch;
    if (text.find("overflow injected") == std::string::npos) continue;
    return json::parse(text.substr(text.find('['))).get<std::set<int64_t>>();
  }
  return {};
}

/// Largest relative differences, and how many steps skip or scale otherwise.
struct Differences {
  double loss = 0, grad_norm = 0, lr = 0;
  int skips = 0, scales = 0;

  void add(const StepResult& ours, double our_lr, const json& theirs) {
    const auto relative = [](double found, double expected) {
      return std::abs(found - expected) / std::max(std::abs(expected), 1e-12);
    };
    loss = std::max(loss, relative(ours.loss, theirs["loss"]));
    lr = std::max(lr, relative(our_lr, theirs["lr"]));
    if (theirs["grad_norm"].is_null()) {
      EXPECT_FALSE(std::isfinite(ours.grad_norm));
    } else {
      grad_norm = std::max(grad_norm, relative(ours.grad_norm, theirs["grad_norm"]));
    }
    skips += ours.skipped != (theirs["skipped"] != 0);
    scales += ours.loss_scale != theirs["loss_scale"].get<double>();
  }
};

TEST(Golden, InjectedOverflows) {
  const auto path = golden_directory() / "deepspeed_0.19.8" / "qwen2_fp16_z2_w2_inject.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "skipped: " << path << " is not there";
  const auto run = testing_support::golden_run(path);
  const json& golden = run.record;
  const auto model = layout::read_model_config(run.model);
  ASSERT_TRUE(model) << model.error().to_string();
  const int world = run.world();
  const auto args = testing_support::bare_deepspeed(golden["ds_config"],
                                                    static_cast<int64_t>(golden["steps"].size()));
  const auto resolution = dsconfig::resolve(golden["ds_config"], args, {.world_size = world});
  ASSERT_TRUE(resolution.runnable());
  const auto& config = resolution.config;
  const auto injected = injected_steps(golden);
  ASSERT_FALSE(injected.empty());

  Differences found;
  testing_support::run_ranks(world, [&](comm::Collectives& inner, memory::Ledger&) {
    testing_support::Poisoned collectives(inner);
    zero::ModelState state(*model, config, at::kCPU, collectives);
    Stepper stepper(*model, config, {.normalization = testing_support::kBareNormalization}, state,
                    at::kCPU);
    PosixFiles files;
    const auto source = weights::WeightSource::open(files, run.model);
    ASSERT_TRUE(source && state.load(*source));
    int64_t skipped = 0;
    for (int64_t step = 0; step < *args.max_steps; ++step) {
      std::vector<models::MicroBatch> batches;
      for (int64_t i = 0; i < config.gradient_accumulation_steps; ++i)
        batches.push_back(testing_support::golden_batch(run, step, i, collectives.rank()));
      if (injected.contains(step)) collectives.arm(state.plan().flats[1].name(), 5);
      const double lr = optim::learning_rate(config.scheduler, config.optimizer.lr, step - skipped);
      const StepResult result = stepper.run(
          {.micro_batches = batches, .rates = {.lr = lr, .previous_lr = lr}, .tokens = 1});
      skipped += result.skipped;
      if (collectives.rank() == 0)
        found.add(result, lr, golden["steps"][static_cast<size_t>(step)]);
    }
  });
  std::cout << "golden: "
            << json{{"loss", found.loss},
                    {"grad_norm", found.grad_norm},
                    {"lr", found.lr},
                    {"skips", found.skips},
                    {"scales", found.scales}}
            << std::endl;
  EXPECT_LE(found.loss, 3e-3);
  EXPECT_LE(found.lr, 1e-6);
  EXPECT_EQ(found.skips, 0);
  EXPECT_EQ(found.scales, 0);
}

/// Moves every weight to the next fp32 number, up or down by the parity of its place and of `seed`.
/// 0: leaves them.
void move_weights(zero::ModelState& state, int64_t seed) {
  for (size_t f = 0; seed != 0 && f < state.plan().flats.size(); ++f) {
    zero::Flat& flat = state.flat(static_cast<int>(f));
    const auto moved = flat.load_state(false, [&](int, const zero::Flat::HostRange& range) {
      for (size_t i = 0; i < range.data.size(); ++i)
        range.data[i] = std::nextafter(range.data[i],
                                       (static_cast<int64_t>(i) / seed + seed) % 2 ? 1e9f : -1e9f);
      return Status{};
    });
    ASSERT_TRUE(moved);
    flat.publish();
  }
}

/// Our losses under the ds_config of a record, by the same rows. `seed`: see move_weights().
std::vector<double> losses_of(const testing_support::GoldenRun& run, int64_t seed = 0) {
  const json& golden = run.record;
  const auto model = layout::read_model_config(run.model);
  EXPECT_TRUE(model);
  const int world = run.world();
  TrainingArgs args = testing_support::bare_deepspeed(golden["ds_config"],
                                                      static_cast<int64_t>(golden["steps"].size()));
  args.max_grad_norm = 0;  // DeepSpeed's default; Hugging Face's is 1
  const auto resolution = dsconfig::resolve(golden["ds_config"], args, {.world_size = world});
  EXPECT_TRUE(resolution.runnable());
  const auto& config = resolution.config;
  std::vector<double> losses;
  testing_support::run_ranks(world, [&](comm::Collectives& collectives, memory::Ledger&) {
    zero::ModelState state(*model, config, at::kCPU, collectives);
    Stepper stepper(*model, config, {.normalization = testing_support::kBareNormalization}, state,
                    at::kCPU);
    PosixFiles files;
    const auto source = weights::WeightSource::open(files, run.model);
    ASSERT_TRUE(source && state.load(*source));
    move_weights(state, seed);
    for (int64_t step = 0; step < *args.max_steps; ++step) {
      const std::vector<models::MicroBatch> batches{
          testing_support::golden_batch(run, step, 0, collectives.rank())};
      const double lr = optim::learning_rate(config.scheduler, config.optimizer.lr, step);
      const StepResult result = stepper.run(
          {.micro_batches = batches, .rates = {.lr = lr, .previous_lr = lr}, .tokens = 1});
      if (collectives.rank() == 0) losses.push_back(result.loss);
    }
  });
  return losses;
}

double relative(double found, double expected) {
  return std::abs(found - expected) / expected;
}

struct OneBitRun {
  const char* name;
  size_t exact;  ///< how many losses come before the first compressed update
  const char* folder = "onebit_0.18.9_eps";
};

/// Until the first compressed update only rounding differs. Behind it a number of the momentum that
/// is almost 0 may have another sign, and then its weight another step: one such sign moves the loss
/// by 5e-6 to 1e-4, LAMB's too (2.6e-5 under ATEN_CPU_CAPABILITY=default, 2e-7 elsewhere). How far that
/// goes is measured: our own runs, with each weight moved by one fp32.
TEST(Golden, OneBitRuns) {
  double spread = 0, behind = 0;
  for (const auto& [name, exact, folder] :
       {OneBitRun{"qwen2_fp32_z0_w2_onebitadam", 7}, OneBitRun{"qwen2_fp32_z0_w3_onebitadam", 5},
        OneBitRun{"qwen2_fp32_z0_w2_zerooneadam", 5},
        OneBitRun{"qwen2_fp32_z0_w2_zerooneadam_wd", 5},
        OneBitRun{"qwen2_fp32_z0_w3_onebitlamb", 6},
        OneBitRun{"qwen2_fp32_z0_w2_onebitlamb", 7, "onebit_0.18.4"}}) {
    const auto path = golden_directory() / folder / (std::string(name) + ".json");
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "skipped: " << path << " is not there";
    const auto run = testing_support::golden_run(path);
    const json& golden = run.record;
    const auto losses = losses_of(run);
    ASSERT_EQ(losses.size(), golden["steps"].size());
    double before = 0, own = 0;
    for (int64_t seed = 1; seed <= 8; ++seed) {
      const auto others = losses_of(run, seed);
      for (size_t step = 0; step < losses.size(); ++step)
        spread = std::max(spread, relative(others[step], losses[step]));
    }
    for (size_t step = 0; step < losses.size(); ++step) {
      double& most = step < exact ? before : own;
      most = std::max(most, relative(losses[step], golden["steps"][step]["loss"]));
    }
    std::cout << "golden: " << name << " " << json{{"before", before}, {"behind", own}}
              << std::endl;
    EXPECT_LE(before, 1e-6) << name;
    behind = std::max(behind, own);
  }
  std::cout << "golden: spread " << spread << std::endl;
  EXPECT_LE(behind, std::max(1e-5, testing_support::kSpreads * spread));
  EXPECT_LE(spread, 1e-3) << "runs that say nothing";
}

}  // namespace
}  // namespace dsj::train
