// Which parameters Muon orthogonalises. Their bytes: memory_model_test.cc.
#include "job/plan/muon_plan.h"

#include <gtest/gtest.h>

namespace dsj::plan {
namespace {

TEST(MuonPlan, MatricesOfTheLayersByNameAndShape) {
  const auto of = [](const char* name, std::vector<int64_t> shape, bool frozen = false) {
    return is_orthogonalised(layout::Parameter{name, std::move(shape), frozen});
  };
  EXPECT_TRUE(of("model.layers.0.mlp.up_proj.weight", {8, 4}));
  EXPECT_FALSE(of("model.layers.0.mlp.up_proj.weight", {8, 4}, true)) << "frozen";
  EXPECT_FALSE(of("model.layers.0.input_layernorm.weight", {4}));
  EXPECT_FALSE(of("model.embed_tokens.weight", {16, 4}));
  EXPECT_FALSE(of("LM_Head.weight", {16, 4})) << "in any case";
  EXPECT_TRUE(of("transformer.wte.weight", {16, 4})) << "as in DeepSpeed, which looks at names";
  EXPECT_TRUE(of("model.layers.0.mlp.up_proj.lora_A.weight", {2, 4}));
}

TEST(MuonPlan, ATensorOfAllExpertsIsRefused) {
  dsconfig::ResolvedConfig config;
  const auto stacked = [](bool frozen) {
    const layout::Parameter experts{"model.layers.0.mlp.experts.gate_up_proj", {4, 8, 4}, frozen};
    return std::vector<layout::UnitSpec>{{"layer 0", {experts}}};
  };
  EXPECT_TRUE(check_muon(stacked(false), config)) << "AdamW";
  config.optimizer.kind = dsconfig::OptimizerKind::Muon;
  EXPECT_TRUE(check_muon(stacked(true), config)) << "frozen";
  const Status refused = check_muon(stacked(false), config);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().to_string().find("experts.gate_up_proj"), std::string::npos);
}

}  // namespace
}  // namespace dsj::plan
