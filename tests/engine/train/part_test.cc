// Runs that train a part of a model: transformers' losses at every stage, and what they cost.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "job/layout/trained_part.h"
#include "job/plan/memory_model.h"
#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

using memory::Class;
using nlohmann::json;

json part_cases() {
  return json::parse(std::ifstream(fixture("part.oracle.json")))["cases"];
}

SmallRun part_run(const json& one, int world, int stage, bool recompute) {
  SmallRun run{.model = one["base"], .world = world, .recompute = recompute};
  run.normalization = dsconfig::LossNormalization::MicroBatch;
  run.config = small_config(stage, /*micro=*/1, /*accumulation=*/2 / world);
  take_adamw(one["adamw"], run.config);
  TrainingArgs training;
  if (!one["parameters"].is_null()) training.trainable_parameters = one["parameters"];
  if (!one["layers"].is_null()) training.trainable_layers = one["layers"].get<int64_t>();
  const auto model = fixture_model(run.model);
  const auto frozen = layout::frozen_parameters(model, training);
  EXPECT_TRUE(frozen) << frozen.error().to_string();
  const auto part = layout::all_but(model, frozen.value_or(std::vector<std::string>()));
  EXPECT_TRUE(part) << part.error().to_string();
  run.part = *part;
  return run;
}

TEST(Part, EqualsTransformersAtEveryStage) {
  const json cases = part_cases();
  for (const auto& [name, one] : cases.items()) {
    for (int stage = 0; stage <= 3; ++stage) {
      const bool recompute = stage % 2 == 1;
      const SmallRun run = part_run(one, 2, stage, recompute);
      const std::string where = name + " stage " + std::to_string(stage);
      testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger&) {
        Rank rank(run, collectives);
        rank.load(run.model);
        EXPECT_EQ(layout::trainable_numel(rank.state.units()), one["trainable"].get<int64_t>());
        std::map<std::string, at::Tensor> before;
        rank.state.visit_weights([&](const layout::Slot& slot, const at::Tensor& value) {
          before[slot.name] = value.clone();
        });
        for (int64_t step = 0; step < 20; ++step) {
          const std::vector<models::MicroBatch> rows = {
              row_of(one["rows"], 2 * step + collectives.rank())};
          const auto done = rank.stepper.run({.micro_batches = rows,
                                              .step = step,
                                              .rates = {.lr = run.config.optimizer.lr},
                                              .tokens = 1});
          const double loss = one["loss"][step], norm = one["grad_norm"][step];
          EXPECT_NEAR(done.loss, loss, 1e-5 * loss) << where << ", step " << step;
          EXPECT_NEAR(done.grad_norm, norm, 1e-4 * norm) << where << ", step " << step;
        }
        std::set<std::string> frozen;
        for (const auto& flat : rank.state.plan().flats)
          for (const auto& slot : flat.slots())
            if (flat.frozen()) frozen.insert(slot.name);
        rank.state.visit_weights([&](const layout::Slot& slot, const at::Tensor& value) {
          EXPECT_EQ(value.equal(before[slot.name]), frozen.contains(slot.name)) << slot.name;
        });
      });
    }
  }
}

TEST(Part, FrozenParametersCostTheirWorkingCopyAlone) {
  const json one = part_cases()["last-layer"];
  for (int stage = 0; stage <= 3; ++stage) {
    const SmallRun run = part_run(one, 2, stage, false);
    const auto plan = plan::memory_model({.model = fixture_model(run.model),
                                          .config = run.config,
                                          .world = 2,
                                          .lora = resolved_lora(run)});
    EXPECT_EQ(plan.trainable, one["trainable"].get<int64_t>());
    measure_ranks(run, [&](Rank&, const memory::Ledger& ledger) {
      EXPECT_EQ(ledger.live(Class::Optimizer), plan.bytes.optimizer) << "stage " << stage;
      EXPECT_LE(ledger.peak(Class::Gradients), plan.bytes.gradients) << "stage " << stage;
    });
  }
}

}  // namespace
}  // namespace dsj::train
