// A recorded run of DeepSpeed whose gradients were made to overflow in some steps, repeated step by
// step: scripts/golden_table.py makes the other runs with `dsj run`, which has no way to do that.
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
#include "engine/train/step.h"
#include "engine/weights/weight_source.h"
#include "job/dsconfig/resolve.h"
#include "test_paths.h"
#include "tests/engine/support/micro_batch.h"
#include "tests/engine/support/poisoned.h"
#include "tests/engine/support/ranks.h"

namespace dsj::train {
namespace {

using nlohmann::json;

std::filesystem::path golden_directory() {
  const char* shared = std::getenv("DSJ_SHARED_DIR");
  return std::filesystem::path(shared ? shared : DSJ_SOURCE_DIR "/../shared") / "golden";
}

json read_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  // Python writes an infinite norm as no JSON knows it.
  for (size_t at; (at = text.find("Infinity")) != std::string::npos;) text.replace(at, 8, "null");
  return json::parse(text);
}

/// The steps in "overflow injected at steps [3,4]".
std::set<int64_t> injected_steps(const json& golden) {
  for (const auto& patch : golden["patched"]) {
    const std::string text = patch;
    if (text.find("overflow injected") == std::string::npos) continue;
    return json::parse(text.substr(text.find('['))).get<std::set<int64_t>>();
  }
  return {};
}

/// Rows dealt in order, as the recorder did (golden/README.md).
models::MicroBatch batch_of(const json& golden, const json& data, int64_t step, int64_t micro_step,
                            int rank) {
  const int64_t micro = golden["micro"], accum = golden["accum"], world = golden["world"];
  std::vector<int64_t> ids, labels;
  for (int64_t row = 0; row < micro; ++row) {
    const int64_t count = static_cast<int64_t>(data["samples"].size());
    const int64_t index = (((step * accum + micro_step) * world + rank) * micro + row) % count;
    const json& sample = data["samples"][static_cast<size_t>(index)];
    for (const auto& id : sample["input_ids"]) ids.push_back(id);
    for (const auto& label : sample["labels"]) labels.push_back(label);
  }
  const auto rectangle = [&](const std::vector<int64_t>& values) {
    return at::tensor(values).view({micro, static_cast<int64_t>(values.size()) / micro});
  };
  return testing_support::rectangle(rectangle(ids), rectangle(labels));
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
  const json golden = read_json(path);
  const auto models = golden_directory() / "models";
  const json data = read_json(models / golden["data"].get<std::string>());
  const std::string directory = models / golden["model"].get<std::string>();
  const auto model = layout::read_model_config(directory);
  ASSERT_TRUE(model) << model.error().to_string();
  const int world = golden["world"];
  TrainingArgs args;
  args.max_steps = static_cast<int64_t>(golden["steps"].size());
  const auto resolution = dsconfig::resolve(golden["ds_config"], args, {.world_size = world});
  ASSERT_TRUE(resolution.runnable());
  const auto& config = resolution.config;
  const auto injected = injected_steps(golden);
  ASSERT_FALSE(injected.empty());

  Differences found;
  testing_support::run_ranks(world, [&](comm::Collectives& inner, memory::Ledger&) {
    testing_support::Poisoned collectives(inner);
    zero::ModelState state(*model, config, at::kCPU, collectives);
    Stepper stepper(*model, config, {}, state, at::kCPU);
    PosixFiles files;
    const auto source = weights::WeightSource::open(files, directory);
    ASSERT_TRUE(source && state.load(*source));
    int64_t skipped = 0;
    for (int64_t step = 0; step < *args.max_steps; ++step) {
      std::vector<models::MicroBatch> batches;
      for (int64_t i = 0; i < config.gradient_accumulation_steps; ++i)
        batches.push_back(batch_of(golden, data, step, i, collectives.rank()));
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

}  // namespace
}  // namespace dsj::train
