// amp: what each level of apex is here, its loss scale, and what DeepSpeed refuses beside it.
#include <gtest/gtest.h>

#include "job/dsconfig/resolve.h"
#include "tests/job/dsconfig/said.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using Severity = Finding::Severity;

Resolution with_amp(json amp, const json& more = json::object()) {
  amp["enabled"] = true;
  json config = {{"train_batch_size", 8},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}},
                 {"amp", std::move(amp)}};
  config.update(more);
  return resolve(config, {.max_steps = 10}, {.world_size = 2});
}

TEST(Amp, LevelsAreModesOfTheEngine) {
  const auto o0 = with_amp({{"opt_level", "O0"}});
  EXPECT_TRUE(o0.runnable());
  EXPECT_EQ(product_type(o0.config), Precision::Fp32);
  EXPECT_FALSE(scales_loss(o0.config));
  for (const json& level :
       {json::object(), json{{"opt_level", "auto"}}, json{{"opt_level", "O1"}}}) {
    const auto o1 = with_amp(level);
    EXPECT_TRUE(o1.runnable()) << said(o1, Severity::Error);
    EXPECT_EQ(o1.config.precision, Precision::Fp32);
    EXPECT_EQ(o1.config.autocast.products, Precision::Fp16);
    EXPECT_TRUE(o1.config.autocast.safe_modules.empty());
    EXPECT_EQ(o1.config.communication_dtype, Precision::Fp32);
  }
  const auto o2 = with_amp({{"opt_level", "O2"}});
  EXPECT_TRUE(o2.runnable()) << said(o2, Severity::Error);
  EXPECT_FALSE(o2.config.autocast.on());
  EXPECT_EQ(o2.config.precision, Precision::Fp16);
  EXPECT_EQ(o2.config.master_dtype, Precision::Fp32);
  EXPECT_EQ(o2.config.grad_accum_dtype, Precision::Fp16);
  const LossScaleConfig scale = o2.config.loss_scale;
  EXPECT_TRUE(scale.like_torch);
  EXPECT_EQ(scale.initial, 65536);
  EXPECT_EQ(scale.window, 2000);
  EXPECT_EQ(scale.maximum, 16777216);
  const LossScaleConfig own =
      with_amp({{"min_loss_scale", 4}, {"max_loss_scale", 1024}, {"loss_scale", 128}})
          .config.loss_scale;
  EXPECT_EQ(own.minimum, 4);
  EXPECT_EQ(own.maximum, 1024);
  EXPECT_EQ(own.fixed, 128);
  EXPECT_EQ(with_amp({{"max_loss_scale", 1024}}).config.loss_scale.initial, 1024) << "as in apex";
  EXPECT_NE(said(with_amp({{"max_loss_scale", 0}}), Severity::Error).find("amp.max_loss_scale"),
            std::string::npos)
      << "every gradient would be 0 / 0";
}

TEST(Amp, WhatDeepSpeedRefuses) {
  const auto error = [](const Resolution& r) { return said(r, Severity::Error); };
  for (const char* other : {"fp16", "bf16"})
    EXPECT_NE(error(with_amp({}, {{other, {{"enabled", true}}}})).find("Cannot enable both amp"),
              std::string::npos);
  for (const int stage : {1, 2, 3})
    EXPECT_NE(error(with_amp({}, {{"zero_optimization", {{"stage", stage}}}}))
                  .find("Amp and ZeRO are not currently compatible"),
              std::string::npos);
  const json autocast = {{"enabled", true}, {"dtype", "bf16"}};
  EXPECT_NE(error(with_amp({}, {{"torch_autocast", autocast}})).find("both on"), std::string::npos);
  EXPECT_NE(error(with_amp({{"loss_scale", "static"}})).find("\"dynamic\""), std::string::npos);
}

TEST(Amp, WhatIsNotBuilt) {
  const auto unbuilt = [](const Resolution& r) { return said(r, Severity::Unsupported); };
  EXPECT_NE(unbuilt(with_amp({{"opt_level", "O3"}})).find("O3"), std::string::npos);
  EXPECT_NE(unbuilt(with_amp({{"master_weights", false}})).find("amp.master_weights"),
            std::string::npos);
  const json one_bit = {{"optimizer", {{"type", "OneBitAdam"}, {"params", {{"lr", 1e-3}}}}}};
  EXPECT_NE(unbuilt(with_amp({}, one_bit)).find("amp.enabled"), std::string::npos);
  EXPECT_NE(said(with_amp({{"opt_level", "O0"}, {"loss_scale", 8}}), Severity::Warning)
                .find("at O0 all is fp32"),
            std::string::npos);
}

}  // namespace
}  // namespace dsj::dsconfig
