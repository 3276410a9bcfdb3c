// Which vectors are compressed, how they are padded, and what goes over the wire.
#include "job/plan/one_bit_plan.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "job/layout/lora.h"
#include "job/plan/zero_plan.h"
#include "test_paths.h"

namespace dsj::plan {
namespace {

using dsconfig::Precision;

dsconfig::ResolvedConfig one_bit_config(Precision precision, int stage = 0) {
  dsconfig::ResolvedConfig config;
  config.precision = precision;
  config.zero.stage = stage;
  config.optimizer.kind = dsconfig::OptimizerKind::OneBitAdam;
  return config;
}

layout::ModelConfig model_of(int64_t vocab, int64_t hidden, int64_t layers) {
  return {.model_type = "qwen2",
          .vocab_size = vocab,
          .hidden_size = hidden,
          .intermediate_size = 4 * hidden,
          .num_layers = layers,
          .num_heads = 2,
          .num_kv_heads = 2,
          .head_dim = hidden / 2};
}

OneBitPlan plan_of(const layout::ModelConfig& model, const dsconfig::ResolvedConfig& config,
                   int world) {
  const auto units = layout::units_of(model);
  return one_bit_plan(units, plan_flats(units, config, world), config, world);
}

TEST(OneBitPlan, PaddingIsDeepSpeeds) {
  for (const auto& [world, multiple] : {std::pair{2, 16}, std::pair{3, 72}, std::pair{4, 32},
                                        std::pair{8, 64}, std::pair{16, 256}}) {
    const auto plan = plan_of(model_of(10, 6, 1), one_bit_config(Precision::Fp32), world);
    for (const auto& vector : plan.vectors) {
      EXPECT_EQ(vector.padded(world) % multiple, 0) << world;
      EXPECT_GE(vector.padded(world), vector.numel);
      EXPECT_LT(vector.padded(world) - vector.numel, multiple);
      EXPECT_EQ(vector.chunk % 8, 0);
    }
  }
}

TEST(OneBitPlan, OneVectorPerParameterInFp32AndOneInSixteenBits) {
  const auto units = layout::units_of(model_of(10, 6, 2));
  const auto many = plan_of(model_of(10, 6, 2), one_bit_config(Precision::Fp32, 1), 2);
  size_t parameters = 0;
  for (const auto& unit : units) parameters += unit.parameters.size();
  EXPECT_EQ(many.vectors.size(), parameters);
  for (const auto precision : {Precision::Bf16, Precision::Fp16}) {
    const auto one = plan_of(model_of(10, 6, 2), one_bit_config(precision), 2);
    ASSERT_EQ(one.vectors.size(), 1u);
    EXPECT_EQ(one.vectors[0].numel, layout::total_numel(units));
  }
}

TEST(OneBitPlan, OneBitLambHasOneVectorInEveryPrecision) {
  const auto units = layout::units_of(model_of(10, 6, 2));
  for (const auto precision : {Precision::Fp32, Precision::Bf16}) {
    auto config = one_bit_config(precision);
    config.optimizer.kind = dsconfig::OptimizerKind::OneBitLamb;
    const auto flats = plan_flats(units, config, 3);
    const auto plan = one_bit_plan(units, flats, config, 3);
    ASSERT_EQ(plan.vectors.size(), 1u);
    EXPECT_EQ(plan.vectors[0].numel, layout::total_numel(units));
    int64_t parameters = 0;
    for (const auto& unit : units) parameters += static_cast<int64_t>(unit.parameters.size());
    EXPECT_EQ(
        one_bit_elements(plan, flats, config, 3),
        4 * plan.vectors[0].chunk + kLambCoefficients * parameters + plan.vectors[0].padding(3));
    EXPECT_EQ(one_bit_elements(plan, flats, config, 1), kLambCoefficients * parameters);
    EXPECT_TRUE(keeps_gradients_local(config, 1)) << "its frozen steps are its own";
  }
}

TEST(OneBitPlan, TheOneVectorHasHuggingFacesOrder) {
  const auto units = layout::units_of(model_of(10, 6, 1));
  std::vector<std::string> names;
  for (const auto& [unit, index] : registration_order(units))
    if (unit == 1) names.push_back(units[unit].parameters[index].name);
  const std::string at = "model.layers.0.";
  EXPECT_EQ(names, (std::vector<std::string>{
                       at + "self_attn.q_proj.weight", at + "self_attn.q_proj.bias",
                       at + "self_attn.k_proj.weight", at + "self_attn.k_proj.bias",
                       at + "self_attn.v_proj.weight", at + "self_attn.v_proj.bias",
                       at + "self_attn.o_proj.weight", at + "mlp.gate_proj.weight",
                       at + "mlp.up_proj.weight", at + "mlp.down_proj.weight",
                       at + "input_layernorm.weight", at + "post_attention_layernorm.weight"}));
  const auto plan = plan_of(model_of(10, 6, 1), one_bit_config(Precision::Bf16), 2);
  EXPECT_EQ(plan.places[0][0].offset, 0) << "the embedding is first";
  EXPECT_EQ(plan.places[1][0].offset + 12, plan.places[2][0].offset) << "norms end a layer";
}

/// A fixture lists its gradients in the order of transformers' named_parameters().
TEST(OneBitPlan, EveryFamilyHasTransformersOrder) {
  const std::string root = std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/";
  int families = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_directory() || !name.starts_with("tiny-")) continue;
    const auto model = layout::read_model_config(entry.path().string());
    ASSERT_TRUE(model) << model.error().to_string();
    const auto units = layout::units_of(*model);
    const Status met = check_one_bit(units, one_bit_config(Precision::Bf16));
    EXPECT_EQ(met.has_value(), model->experts.count == 0) << name;
    if (!met) continue;
    std::vector<std::string> ours, theirs;
    for (const auto& [unit, index] : registration_order(units))
      ours.push_back(units[unit].parameters[index].name);
    std::ifstream file(root + name + ".oracle.json");
    const auto record = nlohmann::ordered_json::parse(file);
    for (const auto& [parameter, gradient] : record["gradients"].items())
      theirs.push_back(parameter);
    EXPECT_EQ(ours, theirs) << name;
    ++families;
  }
  EXPECT_GE(families, 30);
}

TEST(OneBitPlan, ACompressedStepSendsATwentyEighthOfFp32AtTwentyFourMillion) {
  const auto big = model_of(8192, 384, 6);
  const int64_t elements = layout::total_numel(layout::units_of(big));
  ASSERT_GT(elements, 20'000'000);
  for (const int world : {2, 4, 16}) {
    const auto plan = plan_of(big, one_bit_config(Precision::Fp32), world);
    const double whole = 2.0 * (world - 1) / world * static_cast<double>(elements) * 4;
    EXPECT_GE(whole / static_cast<double>(plan.wire_bytes(world)), 28) << world;
  }
}

TEST(OneBitPlan, FrozenParametersAndOneRankCompressNothing) {
  LoraArgs lora{.r = 2, .target_modules = {"q_proj"}};
  const auto resolved = layout::resolve_lora(model_of(10, 6, 1), lora);
  ASSERT_TRUE(resolved);
  const auto units = layout::units_of(model_of(10, 6, 1), *resolved);
  const auto config = one_bit_config(Precision::Fp32);
  const auto plan = one_bit_plan(units, plan_flats(units, config, 2), config, 2);
  EXPECT_EQ(plan.vectors.size(), 2u) << "A and B of the one adapter";
  EXPECT_FALSE(keeps_gradients_local(config, 1));
  EXPECT_TRUE(keeps_gradients_local(config, 2));
  for (const auto& one : dsconfig::kOptimizers) {
    if (!one.refusal.empty()) continue;
    const bool family = one.name.starts_with("OneBit") || one.name == "ZeroOneAdam";
    EXPECT_EQ(keeps_gradients_local({.optimizer = one.defaults}, 2), family) << one.name;
  }
}

}  // namespace
}  // namespace dsj::plan
