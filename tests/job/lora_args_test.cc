#include "job/lora_args.h"

#include <gtest/gtest.h>

#include "job/training_args.h"
#include "tests/job/bad_text.h"

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
            "modulesToSave": ["lm_head"], "useRslora": true})",
        R"({"r": 8, "alpha": 8.0, "dropout": 0.0, "loraplusLrRatio": 16.0})",
        R"({"r": 8, "alpha": 8.0, "dropout": 0.0, "useDora": true, "initLoraWeights": false,
            "rankPattern": {"a": 2}, "alphaPattern": {"b": 3.5}, "layersToTransform": [0, 3]})",
        R"({"r": 8, "alpha": 8.0, "dropout": 0.0, "initLoraWeights": "gaussian"})",
        R"({"r": 8, "alpha": 8.0, "dropout": 0.0, "targetParameters": ["experts.down_proj"]})",
        R"({"r": 8, "alpha": 8.0, "dropout": 0.0, "targetModules": [],
            "targetParameters": ["gate.weight", "experts.gate_up_proj"]})",
        R"({"adapterNameOrPath": "/a", "loadIn4bit": true})",
        R"({"adapterNameOrPath": "/a", "r": 8, "useDora": false, "useRslora": false})",
        R"({"r": 8, "alpha": 8.0, "dropout": 0.0, "loadIn4bit": true, "bnb4bitUseDoubleQuant": true,
            "bnb4bitComputeDtype": "bfloat16"})"}) {
    const json object = json::parse(text);
    const auto args = training_args_from_json({{"lora", object}}, "t");
    ASSERT_TRUE(args) << args.error().to_string();
    EXPECT_EQ(to_json(*args)["lora"], object);
  }
  const auto words = lora_args_from_json({{"r", "16"}, {"alpha", "32"}, {"dropout", "5e-2"}}, "l");
  ASSERT_TRUE(words);
  EXPECT_EQ(*words, (LoraArgs{.r = 16, .alpha = 32, .dropout = 0.05}));
}

TEST(LoraArgsTest, ABaseInFourBitsByTransformersNames) {
  const auto args = lora_args_from_json({{"loadIn4bit", true},
                                         {"loadIn8bit", false},
                                         {"bnb4bitQuantType", "nf4"},
                                         {"bnb4bitUseDoubleQuant", "True"},
                                         {"bnb4bitComputeDtype", "torch.bfloat16"}},
                                        "l");
  ASSERT_TRUE(args) << args.error().to_string();
  EXPECT_TRUE(args->load_in_4bit && args->double_quant);
  EXPECT_EQ(args->compute_dtype, "bfloat16");
  EXPECT_FALSE(lora_args_from_json(json::object(), "l")->load_in_4bit);
  LoraArgs sixteen = *args;
  sixteen.load_in_4bit = false;
  EXPECT_EQ(differences(*args, sixteen), "loadIn4bit true → (not given)");
}

TEST(LoraArgsTest, RefusalsSayWhereAndWhat) {
  for (const BadText& bad : {
           BadText{R"({"r": 0})", "l.r", "at least 1"},
           BadText{R"({"r": 2.5})", "l.r", "at least 1"},
           BadText{R"({"alpha": 0})", "l.alpha", "greater than 0"},
           BadText{R"({"dropout": 1})", "l.dropout", "below 1"},
           BadText{R"({"dropout": -0.1})", "l.dropout", "from 0"},
           BadText{R"({"targetModules": []})", "l.targetModules", "empty"},
           BadText{R"({"targetModules": [3]})", "l.targetModules", "the name of a module"},
           BadText{R"({"targetModules": ["a", "a"]})", "l.targetModules", "twice"},
           BadText{R"({"targetParameters": "experts.down_proj"})", "l.targetParameters", "a list"},
           BadText{R"({"targetParameters": [""]})", "l.targetParameters", "of a parameter"},
           BadText{R"({"modulesToSave": "lm_head"})", "l.modulesToSave", "a list"},
           BadText{R"({"bias": "all"})", "l.bias", "only \"none\""},
           BadText{R"({"loraplusLrRatio": 0})", "l.loraplusLrRatio", "greater than 0"},
           BadText{R"({"lorapLrRatio": 4})", "l.lorapLrRatio", "write \"loraplusLrRatio\" here"},
           BadText{R"({"loadIn4bit": "perhaps"})", "l.loadIn4bit", "true or false"},
           BadText{R"({"loadIn8bit": true})", "l.loadIn8bit", "LLM.int8()"},
           BadText{R"({"bnb4bitQuantType": "fp4"})", "l.bnb4bitQuantType", "only \"nf4\""},
           BadText{R"({"bnb4bitComputeDtype": "int8"})", "l.bnb4bitComputeDtype", "bfloat16"},
           BadText{R"({"useBnbNestedQuant": true})", "l.useBnbNestedQuant",
                   "write \"bnb4bitUseDoubleQuant\" here"},
           BadText{R"({"use_dora": true})", "l.use_dora", "did you mean \"useDora\"?"},
           BadText{R"({"useDora": 2})", "l.useDora", "true or false"},
           BadText{R"({"rankPattern": [4]})", "l.rankPattern", "expected an object"},
           BadText{R"({"rankPattern": {"q_proj": 0}})", "l.rankPattern.q_proj", "at least 1"},
           BadText{R"({"alphaPattern": {"q_proj": 0}})", "l.alphaPattern.q_proj", "greater than 0"},
           BadText{R"({"layersToTransform": [-1]})", "l.layersToTransform", "from 0"},
           BadText{R"({"initLoraWeights": "pissa_niter_4"})", "l.initLoraWeights",
                   "lora.adapterNameOrPath"},
           BadText{R"({"initLoraWeights": "olora"})", "l.initLoraWeights", "OLoRA"},
           BadText{R"({"initLoraWeights": "eva"})", "l.initLoraWeights", "EVA"},
           BadText{R"({"initLoraWeights": "zeros"})", "l.initLoraWeights", "gaussian"},
           BadText{R"({"adapterNameOrPath": "a,b"})", "l.adapterNameOrPath", "several"},
           BadText{R"({"excludeModules": ["q_proj"]})", "l.excludeModules", "not built"},
           BadText{R"({"loraAlpha": 16})", "l.loraAlpha", "write \"alpha\" here"},
           BadText{R"({"target_modules": ["q_proj"]})", "l.target_modules",
                   "did you mean \"targetModules\"?"},
           BadText{R"(true)", "l", "expected an object"},
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
