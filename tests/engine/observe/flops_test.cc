// Counts against a calculation by hand, and what each key of flops_profiler changes.
#include "engine/observe/flops.h"

#include <gtest/gtest.h>

namespace dsj::observe {
namespace {

layout::ModelConfig model(bool tied) {
  return {.model_type = "qwen2",
          .vocab_size = 50,
          .hidden_size = 8,
          .intermediate_size = 12,
          .num_layers = 2,
          .num_heads = 2,
          .num_kv_heads = 1,
          .head_dim = 4,
          .max_position = 64,
          .tied = tied};
}

Module counted(bool tied) {
  constexpr int64_t kLengths[] = {5, 2, 8};
  return count_forward(model(tied), layout::units_of(model(tied)), kLengths);
}

TEST(Flops, EqualACalculationByHand) {
  constexpr int64_t kTokens = 5 + 2 + 8;
  // q 8x8, k and v 4x8, o 8x8; gate, up, down 12x8 each; two products of heads x L x L x D.
  constexpr int64_t kAttention =
      kTokens * (64 + 32 + 32 + 64) + 2 * 2 * 4 * (5 * 5 + 2 * 2 + 8 * 8);
  constexpr int64_t kMlp = kTokens * 3 * 96;
  for (const bool tied : {false, true}) {
    const Module root = counted(tied);
    ASSERT_EQ(root.children.size(), 4u);
    EXPECT_EQ(root.children[0].macs, 0) << "an embedding multiplies nothing";
    EXPECT_EQ(root.children[1].macs, kAttention + kMlp);
    EXPECT_EQ(root.children[3].macs, kTokens * 50 * 8);
    EXPECT_EQ(root.macs, 2 * (kAttention + kMlp) + kTokens * 50 * 8);
    EXPECT_EQ(root.flops(), 2 * root.macs);
    EXPECT_EQ(root.parameters, layout::total_numel(layout::units_of(model(tied))));
  }
}

TEST(Flops, OfExpertsOnlyWhatTokensPass) {
  layout::ModelConfig with = model(false);
  with.experts = {.count = 6, .per_token = 2, .inner = 5, .shared_inner = 7};
  constexpr int64_t kLengths[] = {5, 2, 8}, kTokens = 5 + 2 + 8;
  const Module root = count_forward(with, layout::units_of(with), kLengths);
  const Module dense = counted(false);
  EXPECT_EQ(root.children[1].macs - dense.children[1].macs,
            kTokens * (6 * 8 + 2 * 3 * 5 * 8 + 3 * 7 * 8 - 3 * 96))
      << "the router, two experts, the shared one";
  EXPECT_EQ(root.parameters - dense.parameters, 2 * (6 * 8 + 6 * 3 * 5 * 8 + 3 * 7 * 8 - 3 * 96));
}

TEST(Flops, OfTheDeltaRuleGrowWithTheTokens) {
  layout::ModelConfig with = model(false);
  with.delta = {.key_heads = 1,
                .value_heads = 2,
                .key_dim = 3,
                .value_dim = 5,
                .kernel = 4,
                .layers = {true, false}};
  constexpr int64_t kLengths[] = {5, 2, 8}, kTokens = 5 + 2 + 8;
  const Module root = count_forward(with, layout::units_of(with), kLengths);
  const Module dense = counted(false);
  // Products of 16 columns, 2 and 2 for the gates of the rule, 10 for those of the result; from 10 back.
  constexpr int64_t kProducts = (16 + 2 + 2 + 10) * 8 + 10 * 8;
  constexpr int64_t kRule = 3 * 2 * 3 * 5 + 16 * 4;
  EXPECT_EQ(root.children[1].macs, kTokens * (kProducts + kRule + 3 * 96));
  EXPECT_EQ(root.children[2].macs, dense.children[2].macs) << "a layer with attention";
}

TEST(Flops, OfMambaGrowWithTheTokens) {
  layout::ModelConfig with = model(false);
  with.names.delta = "mamba";
  with.delta = {.key_heads = 1,
                .value_heads = 2,
                .key_dim = 3,
                .value_dim = 5,
                .kernel = 4,
                .layers = {true, false},
                .mamba = true};
  constexpr int64_t kLengths[] = {5, 2, 8}, kTokens = 5 + 2 + 8;
  const Module root = count_forward(with, layout::units_of(with), kLengths);
  // One product of 10 gates, 10 values, 3 keys, 3 queries and 2 steps; from 10 back.
  constexpr int64_t kProducts = (10 + 10 + 3 + 3 + 2) * 8 + 10 * 8;
  EXPECT_EQ(root.children[1].macs, kTokens * (kProducts + 2 * 2 * 3 * 5 + 16 * 4 + 3 * 96));
}

TEST(Flops, OfAShortConvolutionGrowWithTheTokens) {
  layout::ModelConfig with = model(false);
  with.conv = {.kernel = 3, .layers = {true, false}};
  constexpr int64_t kLengths[] = {5, 2, 8}, kTokens = 5 + 2 + 8;
  const Module root = count_forward(with, layout::units_of(with), kLengths);
  EXPECT_EQ(root.children[1].macs, kTokens * (3 * 8 * 8 + 8 * 8 + 3 * 8 + 3 * 96))
      << "its two products, the filter, the MLP";
  EXPECT_EQ(root.children[2].macs, counted(false).children[2].macs) << "a layer with attention";
}

TEST(Flops, ALayerThatDropsTokensCountsThoseItSees) {
  constexpr int64_t kLengths[] = {5, 2, 8}, kLayers[] = {1};
  const Module root = count_forward(model(false), layout::units_of(model(false)), kLengths,
                                    {.layers = kLayers, .most = 4});
  constexpr int64_t kTokens = 4 + 2 + 4;
  EXPECT_EQ(root.children[2].macs,
            kTokens * (64 + 32 + 32 + 64 + 3 * 96) + 2 * 2 * 4 * (4 * 4 + 2 * 2 + 4 * 4));
  const Module whole = counted(false);
  for (const size_t unit : {1, 3}) EXPECT_EQ(root.children[unit].macs, whole.children[unit].macs);
}

ProfiledStep step() {
  ProfiledStep step{
      .step = 7, .world = 2, .rows = 3, .tokens = 15, .accumulation = 2, .samples_per_step = 12};
  step.times = {.forward = 4,
                .backward_inner = 6,
                .backward_allreduce = 2,
                .step = 8,
                .unit_forward = {1, 2, 1, 0},
                .unit_backward = {1, 1, 1, 3}};
  return step;
}

TEST(Flops, ReportIsAboutOneMicroBatch) {
  const std::string text = flops_report({}, counted(false), step());
  for (const char* part :
       {"step 7", "15", "2.000 ms", "4.000 ms", "8.000 ms", "20.000 ms", "600.00"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

TEST(Flops, EveryKeyChangesTheReport) {
  const auto report = [](const dsconfig::FlopsProfilerConfig& config) {
    return flops_report(config, counted(false), step());
  };
  const std::string plain = report({});
  EXPECT_NE(plain.find("q_proj"), std::string::npos);
  const std::string brief = report({.module_depth = 1, .detailed = false});
  EXPECT_EQ(brief.find("q_proj"), std::string::npos) << brief;
  EXPECT_EQ(brief.find("depth 2"), std::string::npos) << brief;
  EXPECT_NE(brief.find("depth 1"), std::string::npos) << brief;
  const std::string two = report({.module_depth = 1, .top_modules = 2, .detailed = false});
  EXPECT_EQ(brief.find("layer 1"), std::string::npos) << "the largest only\n" << brief;
  EXPECT_NE(two.find("layer 1"), std::string::npos) << two;
  EXPECT_NE(report({.recompute_fwd_factor = 1}).find("= 3 x fwd flops"), std::string::npos);
  EXPECT_NE(plain.find("= 2 x fwd flops"), std::string::npos);
}

}  // namespace
}  // namespace dsj::observe
