// torch_autocast: when it is on, with which types, which scale, which modules; what DeepSpeed refuses.
#include <gtest/gtest.h>

#include "job/dsconfig/resolve.h"
#include "tests/job/dsconfig/said.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using Severity = Finding::Severity;

Resolution with_autocast(const json& autocast, const json& more = json::object(), int stage = 2) {
  json config = {{"train_batch_size", 8},
                 {"zero_optimization", {{"stage", stage}}},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}},
                 {"torch_autocast", autocast}};
  config.update(more);
  return resolve(config, {.max_steps = 10}, {.world_size = 2});
}

const json kAutocastBf16 = {{"enabled", true}, {"dtype", "bfloat16"}};
const json kAutocastFp16 = {{"enabled", true}, {"dtype", "float16"}};

TEST(Autocast, IsOnWithItsType) {
  const ResolvedConfig off = with_autocast({{"enabled", false}, {"dtype", "bfloat16"}}).config;
  EXPECT_FALSE(off.autocast.on());
  const auto bf16 = with_autocast(kAutocastBf16);
  EXPECT_TRUE(bf16.runnable());
  EXPECT_EQ(bf16.config.precision, Precision::Fp32) << "parameters";
  EXPECT_EQ(product_type(bf16.config), Precision::Bf16);
  EXPECT_EQ(bf16.config.grad_accum_dtype, Precision::Fp32);
  EXPECT_EQ(bf16.config.communication_dtype, Precision::Fp32);
  EXPECT_FALSE(scales_loss(bf16.config));
  for (const char* name : {"torch.float16", "fp16", "Half"})
    EXPECT_EQ(product_type(with_autocast({{"enabled", true}, {"dtype", name}}).config),
              Precision::Fp16);
}

TEST(Autocast, Fp16HasTorchsScale) {
  const ResolvedConfig config = with_autocast(kAutocastFp16).config;
  EXPECT_TRUE(scales_loss(config));
  EXPECT_TRUE(config.loss_scale.like_torch);
  EXPECT_EQ(config.loss_scale.initial, 65536);
  EXPECT_EQ(config.loss_scale.window, 2000);
  EXPECT_EQ(config.loss_scale.hysteresis, 1);
  EXPECT_EQ(config.loss_scale.fixed, 0);
}

TEST(Autocast, SafeModules) {
  using Names = std::vector<std::string>;
  const auto modules = [](const json& list) {
    json section = kAutocastBf16;
    section["lower_precision_safe_modules"] = list;
    return with_autocast(section);
  };
  EXPECT_EQ(with_autocast(kAutocastBf16).config.autocast.safe_modules,
            (Names{"torch.nn.Linear", "torch.nn.Conv1d"}));
  EXPECT_EQ(modules(json::array()).config.autocast.safe_modules, Names{});
  const auto known = modules({"torch.nn.modules.sparse.Embedding", "torch.nn.Conv2d",
                              "transformers.pytorch_utils.Conv1D", "torch.nn.Embedding"});
  EXPECT_TRUE(known.runnable());
  EXPECT_EQ(known.config.autocast.safe_modules,
            (Names{"torch.nn.Embedding", "transformers.pytorch_utils.Conv1D"}));
  const auto norm = modules({"torch.nn.LayerNorm"});
  EXPECT_FALSE(norm.runnable());
  EXPECT_NE(said(norm, Severity::Unsupported).find("torch.nn.LayerNorm"), std::string::npos);
  EXPECT_NE(errors_said(modules({1})).find("expected a list of strings"), std::string::npos);
}

TEST(Autocast, WhatDoesNotGoWithIt) {
  EXPECT_NE(errors_said(with_autocast({{"enabled", true}})).find("torch_autocast.dtype"),
            std::string::npos);
  for (const char* model : {"bf16", "fp16"})
    EXPECT_NE(
        said(with_autocast(kAutocastFp16, {{model, {{"enabled", true}}}}), Severity::Unsupported)
            .find("is not built"),
        std::string::npos)
        << model;
  const json one_bit = {{"optimizer", {{"type", "OneBitAdam"}, {"params", {{"lr", 1e-3}}}}}};
  EXPECT_NE(said(with_autocast(kAutocastBf16, one_bit, 0), Severity::Unsupported).find("1-bit"),
            std::string::npos);
}

/// The example of DeepSpeed for masters in bf16: in 0.18 and later autocast may be on, too.
TEST(Autocast, ABf16ModelIsBf16ByItself) {
  const json masters = {
      {"enabled", true}, {"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", true}};
  for (const int stage : {1, 2, 3}) {
    const json wire = {{"bf16", masters}, {"communication_data_type", "fp32"}};
    const auto both = with_autocast(kAutocastBf16, wire, stage);
    EXPECT_TRUE(both.runnable()) << errors_said(both) << said(both, Severity::Unsupported);
    EXPECT_EQ(both.config.precision, Precision::Bf16);
    EXPECT_EQ(product_type(both.config), Precision::Bf16);
    EXPECT_FALSE(both.config.autocast.on()) << "there is nothing to cast";
    EXPECT_EQ(both.config.master_dtype, Precision::Bf16);
    EXPECT_EQ(both.config.state_dtype, Precision::Bf16);
    EXPECT_EQ(both.config.communication_dtype, Precision::Bf16) << "as the parameters' type is";
    EXPECT_NE(said(both, Severity::Warning).find("communication_data_type"), std::string::npos);
    const auto alone = with_autocast({{"enabled", false}}, {{"bf16", masters}}, stage);
    EXPECT_EQ(alone.config.communication_dtype, both.config.communication_dtype);
  }
}

TEST(Autocast, WhatHasNoEffectIsSaid) {
  const auto fp32 = with_autocast({{"enabled", true}, {"dtype", "fp32"}});
  EXPECT_FALSE(fp32.config.autocast.on());
  EXPECT_NE(said(fp32, Severity::Warning).find("products stay fp32"), std::string::npos);
  const json wire = {{"communication_data_type", "fp16"}};
  const auto sharded = with_autocast(kAutocastBf16, wire, 1),
             whole = with_autocast(kAutocastBf16, wire, 0);
  EXPECT_EQ(sharded.config.communication_dtype, Precision::Fp32);
  EXPECT_NE(said(sharded, Severity::Warning).find("communication_data_type"), std::string::npos);
  EXPECT_EQ(whole.config.communication_dtype, Precision::Fp16) << "stage 0 sends in it";
  EXPECT_EQ(said(whole, Severity::Warning), "");
}

}  // namespace
}  // namespace dsj::dsconfig
