#include "job/layout/reward_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "job/layout/families/families.h"
#include "job/layout/lora.h"
#include "job/layout/model_config.h"
#include "test_paths.h"

namespace dsj::layout {
namespace {

using nlohmann::json;

json qwen2(const json& more = json::object()) {
  json config = {{"model_type", "qwen2"},      {"vocab_size", 64},
                 {"hidden_size", 16},          {"intermediate_size", 32},
                 {"num_hidden_layers", 2},     {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},   {"max_position_embeddings", 128},
                 {"tie_word_embeddings", true}};
  config.update(more);
  return config;
}

ModelConfig read(const json& config) {
  auto model = model_config_from_json(config, "config.json");
  EXPECT_TRUE(model) << model.error().to_string();
  return model.value_or(ModelConfig{});
}

TEST(RewardModel, HasAScoreInPlaceOfItsHead) {
  const auto model = as_reward_model(read(qwen2({{"initializer_range", 0.5}})), "here");
  ASSERT_TRUE(model) << model.error().to_string();
  const auto units = units_of(*model);
  EXPECT_FALSE(units.back().uses_embedding);
  ASSERT_EQ(units.back().parameters.size(), 2u);
  const Parameter& score = units.back().parameters.back();
  EXPECT_EQ(score.name, "score.weight");
  EXPECT_EQ(score.shape, (std::vector<int64_t>{1, 16}));
  EXPECT_EQ(score.drawn, 0.5);
  EXPECT_EQ(units.front().parameters.front().shape[0], 64) << "the embedding stays";
  EXPECT_EQ(units.back().parameters.front().drawn, 0);
}

TEST(RewardModel, IsKnownByItsConfig) {
  const json classes = {"Qwen2ForSequenceClassification"};
  EXPECT_TRUE(read(qwen2({{"architectures", classes}, {"id2label", {{"0", "LABEL_0"}}}})).scored);
  EXPECT_TRUE(read(qwen2({{"architectures", classes}, {"num_labels", 1}})).scored);
  EXPECT_FALSE(read(qwen2({{"architectures", {"Qwen2ForCausalLM"}}})).scored);
  EXPECT_FALSE(read(qwen2()).scored);
  for (const json& more : {json{{"architectures", classes}},  // transformers' default is two
                           json{{"architectures", classes},
                                {"id2label", {{"0", "bad"}, {"1", "good"}, {"2", "best"}}}}}) {
    const auto model = model_config_from_json(qwen2(more), "config.json");
    ASSERT_FALSE(model);
    EXPECT_NE(model.error().message.find("labels, expected 1"), std::string::npos)
        << model.error().message;
  }
}

/// What transformers has no class for is refused by the type's name.
TEST(RewardModel, OfATypeWithoutSuchAClassIsRefused) {
  int known = 0;
  for (const Family& family : families()) {
    ModelConfig model = read(qwen2());
    model.model_type = family.model_type;
    const auto made = as_reward_model(model, "here");
    const char* name = reward_class(family.model_type);
    EXPECT_EQ(made.has_value(), name != nullptr) << family.model_type;
    known += name != nullptr;
    if (!made) {
      EXPECT_NE(made.error().message.find(family.model_type), std::string::npos);
    }
    model.is_text_part = true;
    EXPECT_FALSE(as_reward_model(model, "here"));
  }
  EXPECT_GT(known, 30);
}

/// As PEFT does for SEQ_CLS.
TEST(RewardModel, ItsScoreIsTrainedWholeBesideAdapters) {
  const auto model = as_reward_model(read(qwen2()), "here");
  for (const auto& saved : {std::vector<std::string>{}, std::vector<std::string>{"score"}}) {
    LoraArgs lora;
    lora.target_pattern = "all-linear";
    lora.modules_to_save = saved;
    const auto resolved = resolve_lora(*model, lora);
    ASSERT_TRUE(resolved) << resolved.error().to_string();
    EXPECT_EQ(resolved->modules_to_save, std::vector<std::string>{"score"});
    EXPECT_EQ(std::ranges::count(resolved->target_modules, "score"), 0);
    EXPECT_FALSE(units_of(*model, *resolved).back().parameters.back().frozen);
  }
}

}  // namespace
}  // namespace dsj::layout
