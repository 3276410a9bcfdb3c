#include "job/lora_args.h"

#include <gtest/gtest.h>

#include "job/training_args.h"

namespace dsj {
namespace {

using nlohmann::json;

TEST(LoraArgsTest, DefaultsArePefts) {
  const auto args = lora_args_from_json(json::object(), "lora");
  ASSERT_TRUE(args);
  EXPECT_EQ(*args, (LoraArgs{.r = 8, .alpha = 8, .dropout = 0}));
  EXPECT_EQ(args->scaling(), 1);
}

TEST(LoraArgsTest, ScalingIsAlphaOverRankOrItsRoot) {
  EXPECT_EQ((LoraArgs{.r = 4, .alpha = 16}).scaling(), 4);
  EXPECT_EQ((LoraArgs{.r = 4, .alpha = 16, .use_rslora = true}).scaling(), 8);
}

TEST(LoraArgsTest, WhatIsReadIsWritten) {
  for (const char* text :
       {R"({"r": 4, "alpha": 16.0, "dropout": 0.1, "targetModules": ["q_proj"]})",
        R"({"r": 4, "alpha": 16.0, "dropout": 0.1, "targetModules": ".*_proj",
            "modulesToSave": ["lm_head"], "useRslora": true})"}) {
    const json object = json::parse(text);
    const auto args = training_args_from_json({{"lora", object}}, "t");
    ASSERT_TRUE(args) << args.error().to_string();
    EXPECT_EQ(to_json(*args)["lora"], object);
  }
  const auto words = lora_args_from_json({{"r", "16"}, {"alpha", "32"}, {"dropout", "5e-2"}}, "l");
  ASSERT_TRUE(words);
  EXPECT_EQ(*words, (LoraArgs{.r = 16, .alpha = 32, .dropout = 0.05}));
}

struct Bad {
  const char* text;
  const char* where;
  const char* says;
};

TEST(LoraArgsTest, RefusalsSayWhereAndWhat) {
  for (const Bad& bad : {
           Bad{R"({"r": 0})", "l.r", "at least 1"},
           Bad{R"({"r": 2.5})", "l.r", "at least 1"},
           Bad{R"({"alpha": 0})", "l.alpha", "greater than 0"},
           Bad{R"({"dropout": 1})", "l.dropout", "below 1"},
           Bad{R"({"dropout": -0.1})", "l.dropout", "from 0"},
           Bad{R"({"targetModules": []})", "l.targetModules", "empty"},
           Bad{R"({"targetModules": [3]})", "l.targetModules", "the name of a module"},
           Bad{R"({"targetModules": ["a", "a"]})", "l.targetModules", "twice"},
           Bad{R"({"modulesToSave": "lm_head"})", "l.modulesToSave", "a list"},
           Bad{R"({"bias": "all"})", "l.bias", "only \"none\""},
           Bad{R"({"use_dora": true})", "l.use_dora", "not built"},
           Bad{R"({"rankPattern": {}})", "l.rankPattern", "not built"},
           Bad{R"({"initLoraWeights": "gaussian"})", "l.initLoraWeights", "not built"},
           Bad{R"({"loraAlpha": 16})", "l.loraAlpha", "write \"alpha\" here"},
           Bad{R"({"target_modules": ["q_proj"]})", "l.target_modules",
               "did you mean \"targetModules\"?"},
           Bad{R"(true)", "l", "expected an object"},
       }) {
    const auto args = lora_args_from_json(json::parse(bad.text), "l");
    ASSERT_FALSE(args) << bad.text;
    EXPECT_EQ(args.error().where, bad.where) << args.error().to_string();
    EXPECT_NE(args.error().to_string().find(bad.says), std::string::npos)
        << args.error().to_string();
  }
}

TEST(LoraArgsTest, DifferencesAreNamed) {
  const LoraArgs before{.r = 8, .target_modules = {"q_proj"}};
  EXPECT_EQ(differences(before, before), "");
  EXPECT_EQ(differences(before, {.r = 16, .target_pattern = "all-linear", .use_rslora = true}),
            "r 8 → 16, targetModules [\"q_proj\"] → \"all-linear\", useRslora (not given) → true");
}

}  // namespace
}  // namespace dsj
