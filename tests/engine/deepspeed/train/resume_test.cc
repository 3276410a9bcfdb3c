// Training that goes on from a checkpoint of DeepSpeed 0.19.8 (golden/ds_checkpoints): the next losses are DeepSpeed's, at
// its number of ranks and stage and at others. Universal checkpoints, too.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/files/posix_files.h"
#include "engine/deepspeed/checkpoint.h"
#include "engine/optim/lr_schedule.h"
#include "engine/train/state/frozen.h"
#include "engine/train/state/loading.h"
#include "engine/train/step/step.h"
#include "job/dsconfig/resolve.h"
#include "test_paths.h"
#include "tests/engine/support/bare_deepspeed.h"
#include "tests/engine/support/golden_runs.h"
#include "tests/engine/support/micro_batch.h"
#include "tests/engine/support/ranks.h"

namespace dsj::train {
namespace {

using nlohmann::json;
using testing_support::golden_directory;
using testing_support::read_golden;

/// One micro-batch of 2 rows as the recorder dealt them: `index` counts those of all ranks and steps.
models::MicroBatch batch_of(const json& data, int64_t index) {
  std::vector<int64_t> ids, labels;
  const auto count = static_cast<int64_t>(data["samples"].size());
  for (int64_t row = 0; row < 2; ++row) {
    const json& sample = data["samples"][static_cast<size_t>((2 * index + row) % count)];
    for (const auto& id : sample["input_ids"]) ids.push_back(id);
    for (const auto& label : sample["labels"]) labels.push_back(label);
  }
  const auto rows = [](const std::vector<int64_t>& values) {
    return at::tensor(values).view({2, static_cast<int64_t>(values.size()) / 2});
  };
  return testing_support::rectangle(rows(ids), rows(labels));
}

struct Case {
  const char* folder;
  int saved_world, world, stage;
  bool universal = false;
};

/// The largest relative distance of the losses and rates of steps 3, 4 and 5, of a run that goes on as
/// `dsj run --resume_from_checkpoint DIR` does.
double distance(const Case& c) {
  const json record = read_golden(golden_directory() / "ds_checkpoints" / c.folder / "record.json");
  const auto models = golden_directory() / "models";
  const json data = read_golden(models / record["data"].get<std::string>());
  const auto model = layout::read_model_config(models / record["model"].get<std::string>());
  EXPECT_TRUE(model);
  const int64_t micro_steps = c.saved_world / c.world;
  json ds_config = record["ds_config"];
  ds_config["zero_optimization"] = {{"stage", c.stage}};
  ds_config["gradient_accumulation_steps"] = micro_steps;
  if (c.universal) ds_config["checkpoint"]["load_universal"] = true;
  const auto args = testing_support::bare_deepspeed(ds_config, 6);
  double most = 0;
  testing_support::run_ranks(c.world, [&](comm::Collectives& collectives, memory::Ledger&) {
    Inputs in;
    in.model = *model;
    in.job = {.run = "run", .attempt = 1, .output_dir = "nothing-is-here"};
    in.job.training.model_name_or_path = models / record["model"].get<std::string>();
    in.job.training.resume_from_checkpoint = golden_directory() / "ds_checkpoints" / c.folder;
    in.resolution = dsconfig::resolve(ds_config, args, {.world_size = c.world});
    ASSERT_TRUE(in.resolution.runnable());
    const auto& config = in.config();
    PosixFiles files;
    auto search = AgreedSearch::begin(files, in.job, collectives, at::kCPU);
    ASSERT_TRUE(search) << search.error().to_string();
    const auto frozen = frozen_in_checkpoint(files, *search, in.job, config, collectives, at::kCPU);
    ASSERT_TRUE(frozen) << frozen.error().to_string();
    EXPECT_EQ(frozen->size(), record["frozen"].is_null() ? 0u : 1u);
    const auto trained = trained_part(in, *frozen);
    ASSERT_TRUE(trained) << trained.error().to_string();
    zero::ModelState state(*model, config, at::kCPU, collectives, *trained);
    Stepper stepper(*model, config, {.normalization = testing_support::kBareNormalization}, state,
                    at::kCPU);
    const auto loaded = Loading(files, in, state, stepper, Events(-1), at::kCPU).load(*search);
    ASSERT_TRUE(loaded) << loaded.error().to_string();
    EXPECT_EQ(loaded->step, 3);
    EXPECT_EQ(stepper.updates(), 3);
    const int64_t skipped = loaded->skipped;
    for (int64_t step = loaded->step; step < 6; ++step) {
      std::vector<models::MicroBatch> batches;
      for (int64_t i = 0; i < micro_steps; ++i)
        batches.push_back(batch_of(data, step * c.saved_world + i * c.world + collectives.rank()));
      const double lr = optim::learning_rate(config.scheduler, config.optimizer.lr, step - skipped);
      const StepResult result = stepper.run({.micro_batches = batches,
                                             .step = step,
                                             .rates = {.lr = lr, .previous_lr = lr},
                                             .tokens = 1});
      if (collectives.rank() != 0) continue;
      const json& theirs = record["steps"][static_cast<size_t>(step)];
      const auto far = [&](double ours, double recorded) {
        most = std::max(most, std::abs(ours / recorded - 1));
      };
      far(result.loss, theirs["loss"]);
      far(lr, theirs["lr"]);
    }
  });
  return most;
}

void expect_within(const std::vector<Case>& cases, double tolerance) {
  if (!std::filesystem::exists(golden_directory() / "ds_checkpoints"))
    GTEST_SKIP() << "skipped: no golden/ds_checkpoints";
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.folder) + " at " + std::to_string(c.world) + " ranks, stage " +
                 std::to_string(c.stage));
    const double found = distance(c);
    EXPECT_LE(found, tolerance);
    std::printf("%s, %d ranks, stage %d%s: %.1e\n", c.folder, c.world, c.stage,
                c.universal ? ", universal" : "", found);
  }
}

TEST(DeepSpeedResume, LossesInFp32AreDeepSpeeds) {
  expect_within({{"qwen2_fp32_z0_w2", 2, 2, 0},
                 {"qwen2_fp32_z0_w2", 2, 1, 3},
                 {"qwen2_fp32_z1_w2", 2, 2, 1},
                 {"qwen2_fp32_z1_w2", 2, 1, 0},
                 {"qwen2_fp32_z2_w2", 2, 2, 2},
                 {"qwen2_fp32_z2_w2", 2, 2, 3},
                 {"qwen2_fp32_z2_w2", 2, 1, 2},
                 {"qwen2_fp32_z2_w3", 3, 3, 2},
                 {"qwen2_fp32_z2_w3", 3, 3, 3},
                 {"qwen2_fp32_z2_w3", 3, 1, 1},
                 {"qwen2_fp32_z3_w2", 2, 2, 3},
                 {"qwen2_fp32_z3_w2", 2, 2, 1},
                 {"qwen2_fp32_z3_w2", 2, 1, 3}},
                1e-5);
}

TEST(DeepSpeedResume, UniversalCheckpointsToo) {
  expect_within({{"qwen2_fp32_z2_w2", 2, 2, 2, true},
                 {"qwen2_fp32_z2_w2", 2, 1, 3, true},
                 {"qwen2_fp32_z2_w2", 2, 2, 0, true}},
                1e-5);
}

/// An embedding that was frozen, and two param groups, of which one has no weight decay. Here all have
/// the file's: that moves the third of these losses by 1.4e-6.
TEST(DeepSpeedResume, ParamGroupsAndFrozenFragmentsToo) {
  expect_within({{"qwen2_fp32_z2_w2_groups2_frozen", 2, 2, 2},
                 {"qwen2_fp32_z2_w2_groups2_frozen", 2, 1, 3},
                 {"qwen2_fp32_z3_w2_groups2_frozen_sub", 2, 2, 3},
                 {"qwen2_fp32_z3_w2_groups2_frozen_sub", 2, 1, 0}},
                1e-5);
}

TEST(DeepSpeedResume, ANamedCheckpointMayBeDeepSpeeds) {
  const auto folder = golden_directory() / "ds_checkpoints";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "skipped: no golden/ds_checkpoints";
  const json record = read_golden(folder / "qwen2_fp32_z2_w2" / "record.json");
  const auto model =
      layout::read_model_config(golden_directory() / "models" / record["model"].get<std::string>());
  ASSERT_TRUE(model);
  Inputs in;
  in.model = *model;
  in.job.output_dir = std::filesystem::temp_directory_path();
  in.resolution =
      dsconfig::resolve(record["ds_config"],
                        testing_support::bare_deepspeed(record["ds_config"], 6), {.world_size = 2});
  ASSERT_TRUE(in.resolution.runnable());
  testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger&) {
    const auto load = [&](const std::string& name) -> Result<std::pair<Progress, int64_t>> {
      Inputs mine;
      mine.model = in.model;
      mine.job = in.job;
      mine.resolution = in.resolution;
      mine.job.training.resume_from_checkpoint = folder / name;
      zero::ModelState state(mine.model, mine.config(), at::kCPU, collectives);
      Stepper stepper(mine.model, mine.config(),
                      {.normalization = testing_support::kBareNormalization}, state, at::kCPU);
      PosixFiles files;
      DSJ_TRY(auto search, AgreedSearch::begin(files, mine.job, collectives, at::kCPU));
      DSJ_TRY(const Progress progress,
              Loading(files, mine, state, stepper, Events(-1), at::kCPU).load(search));
      return std::pair(progress, stepper.updates());
    };
    const auto loaded = load("qwen2_fp32_z2_w2");
    ASSERT_TRUE(loaded) << loaded.error().to_string();
    EXPECT_EQ(loaded->first.step, 3);
    EXPECT_EQ(loaded->first.skipped, 0);
    EXPECT_EQ(loaded->second, 3);
    const auto frozen = load("qwen2_fp32_z2_w2_groups2_frozen");
    ASSERT_FALSE(frozen);
    EXPECT_NE(frozen.error().to_string().find("\"model.embed_tokens.weight\" was frozen"),
              std::string::npos);
  });
}

/// Relative; the README of golden/ds_checkpoints has 3e-4 for DeepSpeed itself.
TEST(DeepSpeedResume, LossesInBf16AreDeepSpeeds) {
  expect_within({{"qwen2_bf16_z1_w2", 2, 2, 1},
                 {"qwen2_bf16_z2_w2", 2, 1, 3},
                 {"qwen2_bf16_z3_w2", 2, 2, 3},
                 {"qwen2_bf16_z3_w2", 2, 2, 0}},
                3e-3);
}

}  // namespace
}  // namespace dsj::train
