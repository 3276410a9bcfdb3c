// A recorded run made again by the engine, step by step, on the record's model and rows.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/files/posix_files.h"
#include "engine/optim/lr_schedule.h"
#include "engine/train/step/step.h"
#include "engine/weights/weight_source.h"
#include "job/dsconfig/resolve.h"
#include "tests/engine/support/bare_deepspeed.h"
#include "tests/engine/support/golden_runs.h"
#include "tests/engine/support/micro_batch.h"
#include "tests/engine/support/ranks.h"

namespace dsj::testing_support {

struct GoldenRun {
  nlohmann::json record;
  nlohmann::json rows;  ///< [{input_ids, labels}], all of one length
  std::string model;    ///< a directory

  int world() const { return record["world"]; }
  dsconfig::ResolvedConfig config() const {
    const auto steps = static_cast<int64_t>(record["steps"].size());
    const auto args = bare_deepspeed(record["ds_config"], steps);
    auto resolution = dsconfig::resolve(record["ds_config"], args, {.world_size = world()});
    EXPECT_TRUE(resolution.runnable()) << record["ds_config"];
    return resolution.config;
  }
};

/// One of those beside the checkout, by its path below golden/.
inline GoldenRun golden_run(const std::filesystem::path& path) {
  GoldenRun run{.record = read_golden(golden_directory() / path)};
  const auto models = golden_directory() / "models";
  run.rows = read_golden(models / run.record["data"].get<std::string>())["samples"];
  run.model = models / run.record["model"].get<std::string>();
  return run;
}

/// Rows dealt in order, as the recorder did (golden/README.md).
inline models::MicroBatch golden_batch(const GoldenRun& run, int64_t step, int64_t micro_step,
                                       int rank) {
  const int64_t micro = run.record["micro"], accum = run.record["accum"];
  std::vector<int64_t> ids, labels;
  for (int64_t i = 0; i < micro; ++i) {
    const int64_t index = ((step * accum + micro_step) * run.world() + rank) * micro + i;
    const auto& row = run.rows[static_cast<size_t>(index) % run.rows.size()];
    for (const auto& id : row["input_ids"]) ids.push_back(id);
    for (const auto& label : row["labels"]) labels.push_back(label);
  }
  return rectangle(at::tensor(ids).view({micro, -1}), at::tensor(labels).view({micro, -1}));
}

/// The steps as rank 0 sees them, under `config`.
inline std::vector<train::StepResult> repeat(const GoldenRun& run,
                                             const dsconfig::ResolvedConfig& config) {
  std::vector<train::StepResult> steps;
  const auto model = layout::read_model_config(run.model);
  EXPECT_TRUE(model) << run.model;
  if (!model) return steps;
  run_ranks(run.world(), [&](comm::Collectives& collectives, memory::Ledger&) {
    zero::ModelState state(*model, config, at::kCPU, collectives);
    train::Stepper stepper(*model, config, {.normalization = kBareNormalization}, state, at::kCPU);
    PosixFiles files;
    const auto source = weights::WeightSource::open(files, run.model);
    ASSERT_TRUE(source && state.load(*source));
    for (int64_t step = 0; step < std::ssize(run.record["steps"]); ++step) {
      std::vector<models::MicroBatch> batches;
      for (int64_t i = 0; i < config.gradient_accumulation_steps; ++i)
        batches.push_back(golden_batch(run, step, i, collectives.rank()));
      auto result = stepper.run({.micro_batches = batches,
                                 .step = step,
                                 .rates = optim::rates_at(config, step),
                                 .tokens = 1});
      if (collectives.rank() == 0) steps.push_back(std::move(result));
    }
  });
  return steps;
}

/// The largest relative difference of a loss from the record's.
inline double apart(const std::vector<train::StepResult>& steps, const GoldenRun& run) {
  EXPECT_EQ(steps.size(), run.record["steps"].size());
  double most = 0;
  for (size_t i = 0; i < std::min(steps.size(), run.record["steps"].size()); ++i)
    most =
        std::max(most, std::abs(steps[i].loss / run.record["steps"][i]["loss"].get<double>() - 1));
  return most;
}

}  // namespace dsj::testing_support
