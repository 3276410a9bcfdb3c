// Which flats travel in the products' type, and what a product copies. The bytes of a whole step: tests/engine/train/autocast_test.cc.
#include "job/plan/autocast_plan.h"

#include <gtest/gtest.h>

#include "job/layout/lora.h"
#include "job/plan/memory_model.h"
#include "job/plan/zero_plan.h"
#include "tests/job/plan/example.h"

namespace dsj::plan {
namespace {

using dsconfig::Precision;

dsconfig::ResolvedConfig config(int stage, std::vector<std::string> modules = {"torch.nn.Linear"}) {
  dsconfig::ResolvedConfig config;
  config.micro_batch_size = 1;
  config.zero.stage = stage;
  config.zero.param_persistence_threshold = 0;
  config.autocast = {Precision::Bf16, std::move(modules)};
  return config;
}

TEST(AutocastPlan, AFlatHasOneTypeOnTheWire) {
  const auto units = layout::units_of(example_model());
  for (const int stage : {0, 1, 2, 3}) {
    const auto c = config(stage);
    const auto plan = plan_flats(units, c, 2);
    for (size_t i = 0; i < plan.flats.size(); ++i) {
      const auto& flat = plan.flats[i];
      const auto types = types_of_flat(units, flat, c, 2);
      const bool linear = module_class(flat.slots().front().name) == "torch.nn.Linear";
      for (const auto& slot : flat.slots()) {
        if (stage == 0) continue;
        EXPECT_EQ(module_class(slot.name) == "torch.nn.Linear", linear) << slot.name;
      }
      EXPECT_EQ(types.wire, stage > 0 && linear ? Precision::Bf16 : Precision::Fp32);
      EXPECT_EQ(types.gathered, types.wire);
    }
    EXPECT_EQ(types_of_flat(units, plan_flats(units, c, 1).flats.front(), c, 1).wire,
              Precision::Fp32)
        << "one rank";
  }
}

TEST(AutocastPlan, CopiesOfWeights) {
  const auto model = example_model();
  const auto units = layout::units_of(model);
  const auto copies = [&](const dsconfig::ResolvedConfig& c, int unit) {
    return weight_copies(units, plan_flats(units, c, 2), c, 2, unit);
  };
  const int head = static_cast<int>(model.num_layers) + 1;
  for (const int stage : {0, 2}) {
    EXPECT_EQ(copies(config(stage), 0), 0);
    EXPECT_EQ(copies(config(stage), 1), 2 * 256 * 2 * 512) << "gate and up";
    EXPECT_EQ(copies(config(stage), head), 2 * 1024 * 256);
  }
  EXPECT_EQ(copies(config(3), 1), 0) << "gathered in bf16";
  EXPECT_EQ(copies(config(3, {}), 1), 2 * 256 * 2 * 512);
}

TEST(AutocastPlan, ActivationsLieBetweenBf16AndFp32) {
  for (const bool recompute : {false, true}) {
    const auto of = [&](Precision precision, Precision products) {
      auto c = config(2);
      c.micro_batch_size = 8;
      c.precision = c.grad_accum_dtype = c.communication_dtype = precision;
      c.autocast.products = products;
      return memory_model({.model = example_model(),
                           .config = c,
                           .world = 2,
                           .tokens_per_row = 1024,
                           .recompute = recompute})
          .bytes;
    };
    const auto bf16 = of(Precision::Bf16, Precision::Fp32);
    const auto both = of(Precision::Fp32, Precision::Bf16);
    const auto fp32 = of(Precision::Fp32, Precision::Fp32);
    EXPECT_LT(bf16.activations, both.activations) << recompute;
    EXPECT_LT(both.activations, fp32.activations) << recompute;
    EXPECT_EQ(both.optimizer, fp32.optimizer);
    EXPECT_GT(both.buckets, fp32.buckets) << "copies of weights";
  }
}

/// Frozen weights have flats of their own, and travel likewise.
TEST(AutocastPlan, FrozenOnesToo) {
  const auto model = example_model();
  const auto lora = layout::resolve_lora(model, {.r = 2});
  ASSERT_TRUE(lora);
  const auto units = layout::units_of(model, *lora);
  const auto c = config(3);
  const auto plan = plan_flats(units, c, 2);
  const auto type = [&](int flat) {
    return types_of_flat(units, plan.flats[static_cast<size_t>(flat)], c, 2).gathered;
  };
  EXPECT_EQ(type(plan.unit_frozen[1]), Precision::Bf16);
  EXPECT_EQ(type(plan.unit_flat[1]), Precision::Bf16) << "adapters";
  ASSERT_GE(plan.persisted_frozen, 0);
  EXPECT_EQ(type(plan.persisted_frozen), Precision::Fp32) << "norms";
}

}  // namespace
}  // namespace dsj::plan
