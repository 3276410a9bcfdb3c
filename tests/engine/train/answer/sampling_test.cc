// What sampling leaves of the logits, against transformers' processors; what a draw follows from.
#include "engine/train/answer/sampling.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

using nlohmann::json;

/// All settings left open, each token possible.
Sampling open_sampling() {
  return {.temperature = 1};
}

Sampling sampling_of(const json& settings) {
  Sampling sampling = open_sampling();
  sampling.temperature = settings.value("temperature", sampling.temperature);
  sampling.top_k = settings.value("top_k", sampling.top_k);
  sampling.top_p = settings.value("top_p", sampling.top_p);
  sampling.min_p = settings.value("min_p", sampling.min_p);
  sampling.repetition_penalty = settings.value("repetition_penalty", sampling.repetition_penalty);
  return sampling;
}

TEST(SamplingTest, LeavesTheProbabilitiesThatTransformersLeaves) {
  const json oracle = json::parse(std::ifstream(fixture("sampling") + ".oracle.json"));
  ASSERT_GE(oracle["cases"].size(), 50u);
  for (const json& row : oracle["cases"]) {
    const auto logits = row["logits"].get<std::vector<float>>();
    const auto seen = row["seen"].get<std::vector<int32_t>>();
    const auto want = row["probabilities"].get<std::vector<double>>();
    const auto got = token_probabilities(sampling_of(row["settings"]), logits, seen);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(got[i], want[i], 1e-6) << row["settings"] << " token " << i;
  }
}

TEST(SamplingTest, TemperatureZeroTakesTheFirstOfTheBestTokens) {
  const std::vector<float> logits{0.5f, 2.0f, -1.0f, 2.0f};
  EXPECT_EQ(token_probabilities({}, logits, {}), (std::vector<double>{0, 1, 0, 0}));
  const std::vector<int32_t> seen{1};
  EXPECT_EQ(token_probabilities({.repetition_penalty = 1.5}, logits, seen),
            (std::vector<double>{0, 0, 0, 1}));
  EXPECT_EQ(choose_token({}, logits, {}, {}, 0), 1);
  EXPECT_EQ(choose_token({.repetition_penalty = 1.5}, logits, {}, seen, 0), 3);
  EXPECT_EQ(choose_token({.repetition_penalty = 1.5}, logits, seen, {}, 0), 3);
}

TEST(SamplingTest, DrawsFollowTheProbabilitiesAndNoDroppedTokenComes) {
  const std::vector<double> probabilities{0, 0.5, 0, 0.25, 0.25, 0};
  std::vector<int> counts(6, 0);
  constexpr int kDraws = 40'000;
  for (uint64_t i = 0; i < kDraws; ++i)
    ++counts[static_cast<size_t>(draw_token(probabilities, token_uniform(3, i % 7, i / 7)))];
  EXPECT_EQ(counts[0] + counts[2] + counts[5], 0);
  // Five standard deviations of a binomial count.
  EXPECT_NEAR(counts[1], kDraws * 0.5, 500);
  EXPECT_NEAR(counts[3], kDraws * 0.25, 435);
  EXPECT_EQ(draw_token(probabilities, 0.999999999999), 4);
  EXPECT_EQ(draw_token(probabilities, 0), 1);
}

TEST(SamplingTest, ANumberFollowsFromSeedStreamAndPosition) {
  std::set<double> all;
  for (uint64_t seed = 0; seed < 10; ++seed)
    for (uint64_t stream = 0; stream < 10; ++stream)
      for (uint64_t position = 0; position < 10; ++position) {
        const double u = token_uniform(seed, stream, position);
        EXPECT_GE(u, 0);
        EXPECT_LT(u, 1);
        all.insert(u);
      }
  EXPECT_EQ(all.size(), 1000u);
}

TEST(SamplingTest, OptionsOverrideTheFileAndTransformersDefaultsFillIt) {
  const auto of = [](const json& file, const SamplingArguments& given) {
    return resolve_sampling(given, file, "generation_config.json").value();
  };
  EXPECT_EQ(of(nullptr, {}).temperature, 0);
  EXPECT_EQ(of({{"temperature", 0.6}}, {}).temperature, 0) << "do_sample is absent";
  const Sampling qwen = of({{"do_sample", true},
                            {"temperature", 0.7},
                            {"top_p", 0.8},
                            {"top_k", 20},
                            {"repetition_penalty", 1.05}},
                           {});
  EXPECT_EQ(qwen.temperature, 0.7);
  EXPECT_EQ(qwen.top_k, 20);
  EXPECT_EQ(qwen.top_p, 0.8);
  EXPECT_EQ(qwen.repetition_penalty, 1.05);
  EXPECT_EQ(of({{"do_sample", true}}, {}).top_k, 50);
  EXPECT_EQ(of({{"do_sample", true}}, {.temperature = 0.0, .top_k = 0}).temperature, 0);
  EXPECT_EQ(of({{"do_sample", false}, {"top_k", 20}}, {.temperature = 0.5}).top_k, 20);
  for (const json& bad : {json{{"do_sample", true}, {"temperature", -1}},
                          json{{"do_sample", true}, {"top_p", "x"}}}) {
    const auto refused = resolve_sampling({}, bad, "generation_config.json");
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().where.find("generation_config.json: t"), std::string::npos);
  }
  EXPECT_EQ(resolve_sampling({}).temperature, 0);
  EXPECT_EQ(resolve_sampling({.top_p = 0.9}).temperature, 1);
}

}  // namespace
}  // namespace dsj::train
