// The model of a run: config.json, and what the run's arguments change of it.
#include "job/layout/trained_model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "job/layout/model_config.h"
#include "test_paths.h"

namespace dsj::layout {
namespace {

using nlohmann::json;

const std::string kFixtures = DSJ_SOURCE_DIR "/tests/fixtures/";

TEST(TrainedModel, OnlyObjectiveRewardTakesARewardModel) {
  const auto refused = read_trained_model(kFixtures + "preference/reward", false);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("LlamaForSequenceClassification"), std::string::npos);
  EXPECT_TRUE(read_trained_model(kFixtures + "preference/reward", true));
  EXPECT_TRUE(read_trained_model(kFixtures + "tiny-llama", true)->scored);
  EXPECT_FALSE(read_trained_model(kFixtures + "tiny-llama", false)->scored);
}

/// LLaMA-Factory and ms-swift set these two fields of the model's configuration.
TEST(TrainedModel, TheArgumentIsTheTwoFieldsOfConfigJson) {
  std::mt19937 random(7);
  std::set<std::string> with, without;
  for (const auto& entry : std::filesystem::directory_iterator(kFixtures)) {
    const std::string directory = entry.path().string();
    if (!std::filesystem::exists(directory + "/config.json")) continue;
    json config = json::parse(std::ifstream(directory + "/config.json"));
    const auto plain = model_config_from_json(config, "config.json");
    if (!plain || plain->scored) continue;
    const double coefficient = std::uniform_real_distribution(1e-4, 1.0)(random);
    TrainingArgs training;
    training.router_aux_loss_coef = coefficient;
    auto model = read_trained_model(directory, false);
    ASSERT_TRUE(model) << directory << model.error().to_string();
    const auto set = set_balance(training, *model);
    ASSERT_EQ(set.has_value(), plain->experts.can_balance) << directory;
    if (!set) {
      EXPECT_EQ(set.error().where, "routerAuxLossCoef");
      EXPECT_NE(set.error().message.find(plain->model_type), std::string::npos);
      without.insert(plain->model_type);
    } else {
      json& part = config.contains("text_config") ? config["text_config"] : config;
      part["output_router_logits"] = true;
      part["router_aux_loss_coef"] = coefficient;
      const auto by_file = model_config_from_json(config, "config.json");
      ASSERT_TRUE(by_file) << directory << by_file.error().to_string();
      EXPECT_EQ(model->experts.balance, by_file->experts.balance) << directory;
      EXPECT_EQ(by_file->experts.balance, coefficient) << directory;
      with.insert(plain->model_type);
    }
    training.router_aux_loss_coef = 0;
    ASSERT_TRUE(set_balance(training, *model)) << directory;
    EXPECT_EQ(model->experts.balance, 0);
  }
  for (const char* type : {"mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "gpt_oss"})
    EXPECT_TRUE(with.contains(type)) << type;
  for (const char* type : {"deepseek_v3", "ernie4_5_moe", "minimax_m2", "llama"})
    EXPECT_TRUE(without.contains(type)) << type;
}

}  // namespace
}  // namespace dsj::layout
