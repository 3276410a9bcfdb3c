// Masters and optimizer states in 16 bits: which types a file means, and DeepSpeed's rules.
#include <gtest/gtest.h>

#include "job/dsconfig/resolve.h"
#include "tests/job/dsconfig/said.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using Severity = Finding::Severity;

/// `precision`: the section bf16 or fp16, with `enabled` added.
Resolution with_precision(const char* section, json precision, int stage, bool offload = false,
                          json params = {{"lr", 1e-3}}) {
  precision.emplace("enabled", true);
  json config = {{"train_micro_batch_size_per_gpu", 1},
                 {section, precision},
                 {"optimizer", {{"type", "AdamW"}, {"params", std::move(params)}}},
                 {"zero_optimization", {{"stage", stage}}}};
  if (offload) config["zero_optimization"]["offload_optimizer"] = {{"device", "cpu"}};
  return resolve(config, {}, {.world_size = 2});
}

std::pair<Precision, Precision> types(const Resolution& resolution) {
  EXPECT_TRUE(resolution.runnable()) << said(resolution, Severity::Error);
  return {resolution.config.master_dtype, resolution.config.state_dtype};
}

constexpr auto kFp32 = Precision::Fp32, kBf16 = Precision::Bf16, kFp16 = Precision::Fp16;
const json kMasters = {{"bf16_master_weights_and_grads", true}};
const json kBoth = {{"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", true}};
const json kHalf = {{"fp16_master_weights_and_grads", true}};

TEST(MasterTypes, AreTheModelsWhereTheFileSaysSo) {
  for (const int stage : {1, 2, 3}) {
    EXPECT_EQ(types(with_precision("bf16", json::object(), stage)), std::pair(kFp32, kFp32));
    EXPECT_EQ(types(with_precision("bf16", kBoth, stage)), std::pair(kBf16, kBf16));
    EXPECT_EQ(types(with_precision("bf16", kBoth, stage, true)), std::pair(kBf16, kBf16));
    EXPECT_EQ(types(with_precision("bf16", kMasters, stage, true)), std::pair(kBf16, kFp32));
    EXPECT_EQ(types(with_precision("fp16", kHalf, stage, true)), std::pair(kFp16, kFp32));
  }
}

TEST(MasterTypes, MomentsFollowTheOffloadedMasters) {
  const json own = {{"lr", 1e-3}, {"fp32_optimizer_states", false}};
  EXPECT_EQ(types(with_precision("bf16", kMasters, 2, true, own)), std::pair(kBf16, kBf16));
  EXPECT_EQ(types(with_precision("fp16", kHalf, 2, true, own)), std::pair(kFp16, kFp16));
  for (const bool offload : {false, true}) {
    const auto plain = with_precision("bf16", json::object(), 2, offload, own);
    EXPECT_EQ(types(plain), std::pair(kFp32, kFp32)) << "the masters' type is fp32";
    EXPECT_NE(said(plain, Severity::Warning).find("fp32_optimizer_states"), std::string::npos);
  }
}

TEST(MasterTypes, WhatDeepSpeedAssertsIsAnError) {
  const auto error = [](const Resolution& r) { return said(r, Severity::Error); };
  EXPECT_NE(error(with_precision("bf16", kBoth, 0)).find("stages 1, 2 and 3"), std::string::npos);
  EXPECT_NE(error(with_precision("bf16", kMasters, 2)).find("offload_optimizer"),
            std::string::npos);
  EXPECT_NE(error(with_precision("fp16", kHalf, 2)).find("offload_optimizer"), std::string::npos);
  const json states = {{"bf16_optimizer_states", true}};
  EXPECT_NE(error(with_precision("bf16", states, 2)).find("needs bf16.bf16_master"),
            std::string::npos);
  const json torch = {{"lr", 1e-3}, {"torch_adam", true}};
  EXPECT_NE(error(with_precision("bf16", kBoth, 2, true, torch)).find("DeepSpeed's own Adam"),
            std::string::npos);
  EXPECT_EQ(error(with_precision("bf16", kBoth, 2, false, torch)), "");
  json off = kBoth;
  off["enabled"] = false;
  EXPECT_NE(error(with_precision("bf16", off, 2)).find("the model is fp32"), std::string::npos);
}

}  // namespace
}  // namespace dsj::dsconfig
