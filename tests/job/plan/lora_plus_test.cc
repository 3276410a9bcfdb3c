#include "job/plan/lora_plus.h"

#include <gtest/gtest.h>

namespace dsj::plan {
namespace {

/// The groups of peft.optimizers.create_loraplus_optimizer (PEFT 0.21.2), for these names by hand.
TEST(LoraPlus, RaisesTheRateOfBAndOfVectors) {
  const std::vector<layout::Parameter> parameters = {{"q_proj.lora_A.weight", {4, 8}},
                                                     {"q_proj.lora_B.weight", {8, 4}},
                                                     {"model.norm.weight", {8}},
                                                     {"lm_head.weight", {16, 8}},
                                                     {"q_proj.lora_magnitude_vector", {8}}};
  const layout::FlatLayout flat("unit", parameters, 1, 1 << 20);
  dsconfig::ResolvedConfig config;
  EXPECT_TRUE(raised_rates_of_flat(flat, config).empty()) << "no LoRA+";
  config.optimizer.lora_plus_ratio = 4;
  EXPECT_EQ(raised_rates_of_flat(flat, config),
            (std::vector<bool>{false, true, true, false, true}));
  const layout::FlatLayout frozen("frozen", {{"k_proj.bias", {8}, true}}, 1, 1 << 20);
  EXPECT_TRUE(raised_rates_of_flat(frozen, config).empty());
}

}  // namespace
}  // namespace dsj::plan
