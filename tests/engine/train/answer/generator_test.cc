// Greedy completion against transformers' ids, and what batching and a conversation's cache must not change.
#include "engine/train/answer/generator.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

class Generate : public testing::TestWithParam<const char*> {
 protected:
  void with_generator(const std::function<void(Generator&, const json&)>& body) {
    const json oracle = json::parse(std::ifstream(fixture(GetParam()) + ".oracle.json"));
    testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
      const auto model = fixture_model(GetParam());
      Generator generator(model, collectives);
      PosixFiles files;
      const auto source = weights::WeightSource::open(files, fixture(GetParam()));
      ASSERT_TRUE(source) << source.error().to_string();
      ASSERT_TRUE(generator.load(*source));
      body(generator, oracle);
    });
  }
};

TEST_P(Generate, GreedyIdsAreTransformers) {
  with_generator([](Generator& generator, const json& oracle) {
    for (const auto& row : oracle["greedy"]) {
      const Ids want = row["continuation"];
      const std::vector<Ids> prompts{row["prompt"].get<Ids>()};
      EXPECT_EQ(generator.complete(prompts, static_cast<int64_t>(want.size()), {}).at(0), want);
    }
  });
}

TEST_P(Generate, ABatchCompletesAsItsRowsDo) {
  with_generator([](Generator& generator, const json&) {
    const std::vector<Ids> prompts{{5, 9, 40}, {7, 7, 7}, {100, 2, 61}};
    const auto together = generator.complete(prompts, 8, {});
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(generator.complete({&prompts[i], 1}, 8, {}).at(0), together[i]);
    }
  });
}

TEST_P(Generate, PromptsOfSeveralLengthsCompleteAsTheyDoAlone) {
  if (Generator::takes_one_length(fixture_model(GetParam())))
    GTEST_SKIP() << "dynamic rope scaling: one length at a time";
  with_generator([](Generator& generator, const json&) {
    const std::vector<Ids> prompts{{5},  {7, 7, 7, 12, 90, 3, 8}, {100, 2, 61},        {9, 9, 1},
                                   {64}, {33, 118, 45, 2},        {20, 21, 22, 23, 24}};
    const Ids stops = {generator.complete({&prompts[0], 1}, 8, {}).at(0).at(2)};
    const auto together = generator.complete(prompts, 8, stops);
    for (size_t i = 0; i < prompts.size(); ++i)
      EXPECT_EQ(generator.complete({&prompts[i], 1}, 8, stops).at(0), together[i]);
    EXPECT_LE(together[0].size(), 2u) << "a row that is done lets the others go on";
    EXPECT_TRUE(std::ranges::any_of(together, [](const Ids& ids) { return ids.size() > 2; }));
  });
}

TEST(Generator, EachRowEndsWhereItsLearnedPositionsEnd) {
  testing_support::run_ranks(1, [](comm::Collectives& collectives, memory::Ledger&) {
    const auto model = fixture_model("tiny-gpt2");
    Generator generator(model, collectives);
    PosixFiles files;
    ASSERT_TRUE(generator.load(*weights::WeightSource::open(files, fixture("tiny-gpt2"))));
    const auto full = static_cast<size_t>(model.max_position);
    const std::vector<Ids> prompts{{1}, Ids(full, 2), Ids(full - 3, 3)};
    const auto out = generator.complete(prompts, 6, {});
    EXPECT_EQ(out[0].size(), 6u);
    EXPECT_EQ(out[1].size(), 1u) << "what the last position predicts";
    EXPECT_EQ(out[2].size(), 4u);
  });
}

TEST_P(Generate, StopsAtAStopIdAndLeavesItOut) {
  with_generator([](Generator& generator, const json& oracle) {
    const auto& row = oracle["greedy"][0];
    const Ids want = row["continuation"];
    const Ids stops{want[3]};
    const std::vector<Ids> prompts{row["prompt"].get<Ids>()};
    EXPECT_EQ(generator.complete(prompts, 12, stops).at(0),
              Ids(want.begin(), std::ranges::find(want, want[3])));
  });
}

TEST_P(Generate, AConversationGoesOnAsIfItWereReadAnew) {
  with_generator([](Generator& generator, const json&) {
    const auto hear = [](std::span<const int32_t>) { return true; };
    Ids conversation;
    // More tokens at a time than a window has; a turn that is taken back; one that is a part of another.
    for (const Ids& turn : {Ids{5, 9, 40}, Ids{7}, Ids{33, 118, 45, 2, 20, 21, 22}, Ids{100}}) {
      conversation.insert(conversation.end(), turn.begin(), turn.end());
      const Ids alone = generator.complete({&conversation, 1}, 2, {}).at(0);
      EXPECT_EQ(generator.go_on(conversation, 2, {}, Generator::best, hear), alone)
          << conversation.size();
      Ids other = conversation;
      other[other.size() / 2] = 77;
      EXPECT_EQ(generator.go_on(other, 2, {}, Generator::best, hear),
                generator.complete({&other, 1}, 2, {}).at(0));
      EXPECT_EQ(generator.go_on(conversation, 2, {}, Generator::best, hear), alone)
          << conversation.size();
      conversation.insert(conversation.end(), alone.begin(), alone.end());
    }
    const Ids stops{generator.complete({&conversation, 1}, 3, {}).at(0).at(2)};
    EXPECT_EQ(generator.go_on(conversation, 4, stops, Generator::best, hear),
              generator.complete({&conversation, 1}, 4, stops).at(0));
    int heard = 0;
    EXPECT_LE(generator
                  .go_on(conversation, 5, {}, Generator::best,
                         [&](std::span<const int32_t>) { return ++heard < 2; })
                  .size(),
              2u);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Models, Generate,
    testing::Values(
        "tiny-qwen2", "tiny-qwen2-tied", "tiny-qwen1.5", "tiny-llama", "tiny-llama-linear",
        "tiny-llama-dynamic", "tiny-mistral", "tiny-qwen3", "tiny-gpt2", "tiny-llama-yarn",
        "tiny-gemma", "tiny-gemma2", "tiny-gemma3", "tiny-phi3", "tiny-phi4-mini", "tiny-smollm3",
        "tiny-granite", "tiny-olmo2", "tiny-olmo3", "tiny-glm", "tiny-glm4", "tiny-exaone4",
        "tiny-seed-oss", "tiny-ernie4.5", "tiny-helium", "tiny-arcee", "tiny-cwm", "tiny-nemotron",
        "tiny-starcoder2", "tiny-stablelm", "tiny-stablelm-parallel", "tiny-olmo", "tiny-cohere",
        "tiny-cohere2", "tiny-gpt-neox", "tiny-gpt-neox-sequential", "tiny-phi", "tiny-opt",
        "tiny-falcon", "tiny-falcon-40b", "tiny-falcon-sequential", "tiny-gptj", "tiny-gpt-neo",
        "tiny-gpt-bigcode", "tiny-gpt-bigcode-heads", "tiny-hunyuan", "tiny-ministral",
        "tiny-internlm3", "tiny-gemma3-vision", "tiny-mistral3", "tiny-qwen2.5-vl", "tiny-qwen3-vl",
        "tiny-jais2", "tiny-hyperclovax", "tiny-vaultgemma", "tiny-llava", "tiny-smolvlm",
        "tiny-mixtral", "tiny-olmoe", "tiny-qwen2-moe", "tiny-qwen3-moe", "tiny-qwen3-moe-balanced",
        "tiny-granitemoe", "tiny-gpt-oss", "tiny-deepseek-v2", "tiny-deepseek-v2-lite",
        "tiny-deepseek-v3", "tiny-glm4-moe", "tiny-glm4-moe-lite", "tiny-dots1", "tiny-solar-open",
        "tiny-exaone-moe", "tiny-minimax-m2", "tiny-ernie4.5-moe", "tiny-hunyuan-moe",
        "tiny-granitemoeshared", "tiny-granite4", "tiny-granite4-moe", "tiny-youtu",
        "tiny-gemma-padding", "tiny-llama-padding", "tiny-qwen3.5-text", "tiny-qwen3.5",
        "tiny-qwen3-next", "tiny-ministral3", "tiny-ministral3-vision", "tiny-apertus",
        "tiny-flex-olmo", "tiny-qwen3.5-moe-text", "tiny-qwen3.5-moe", "tiny-qwen3-vl-moe",
        "tiny-internvl", "tiny-llava-next", "tiny-llava-onevision", "tiny-aya-vision",
        "tiny-iquestcoder", "tiny-mellum", "tiny-minicpm3", "tiny-gemma4", "tiny-gemma4-vision",
        "tiny-gemma4-unified", "tiny-gemma4-moe", "tiny-lfm2", "tiny-lfm2-moe", "tiny-lfm2-vl",
        "tiny-granite4-h", "tiny-granite4-h-moe", "tiny-gemma4-e2b", "tiny-gemma4-e4b"),
    [](const auto& info) {
      std::string name = info.param;
      std::ranges::replace_if(
          name, [](char c) { return !std::isalnum(c); }, '_');
      return name;
    });

}  // namespace
}  // namespace dsj::train
