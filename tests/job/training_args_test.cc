#include "job/training_args.h"

#include <gtest/gtest.h>

#include "tests/job/bad_text.h"

namespace dsj {
namespace {

using nlohmann::json;

TEST(TrainingArgsTest, ReadsNumbersAsPeopleWriteThem) {
  const auto args = training_args_from_json(json::parse(R"({
    "modelNameOrPath": "m", "learningRate": "1e-6", "maxSteps": 2e3, "bf16": "True",
    "weightDecay": 0, "saveSteps": "3000", "shuffle": false, "saveStrategy": "steps",
    "seed": null, "evaluationStrategy": false})"),
                                            "spec.training");
  ASSERT_TRUE(args) << args.error().to_string();
  EXPECT_EQ(args->model_name_or_path, "m");
  EXPECT_DOUBLE_EQ(*args->learning_rate, 1e-6);
  EXPECT_EQ(*args->max_steps, 2000);
  EXPECT_TRUE(*args->bf16);
  EXPECT_DOUBLE_EQ(*args->weight_decay, 0.0);
  EXPECT_EQ(*args->save_steps, 3000);
  EXPECT_FALSE(*args->shuffle);
  EXPECT_FALSE(args->seed.has_value());
  EXPECT_EQ(*args->evaluation_strategy, "no");
}

TEST(TrainingArgsTest, WritesWhatItRead) {
  const json written = {{"modelNameOrPath", "/m"},     {"dataPath", "/d"},
                        {"outputDir", "/o"},           {"maxSteps", 20},
                        {"learningRate", 2e-5},        {"bf16", true},
                        {"lrSchedulerType", "cosine"}, {"adamBeta2", 0.95},
                        {"maxSeqLength", 512},         {"shuffle", false}};
  const auto args = training_args_from_json(written, "training");
  ASSERT_TRUE(args) << args.error().to_string();
  EXPECT_EQ(to_json(*args), written);
}

TEST(TrainingArgsTest, EveryNameIsReadable) {
  for (const std::string& name : training_arg_names())
    EXPECT_TRUE(training_args_from_json({{name, nullptr}}, "training")) << name;
}

TEST(TrainingArgsTest, RefusalsSayWhereAndWhat) {
  for (const BadText& bad : {
           BadText{R"({"learningRat": 1})", "t.learningRat", "did you mean \"learningRate\"?"},
           BadText{R"({"learning_rate": 1})", "t.learning_rate", "did you mean \"learningRate\"?"},
           BadText{R"({"maxSteps": 2.5})", "t.maxSteps", "expected a whole number"},
           BadText{R"({"maxSteps": "many"})", "t.maxSteps", "expected a whole number"},
           BadText{R"({"learningRate": "fast"})", "t.learningRate", "expected a number"},
           BadText{R"({"learningRate": "inf"})", "t.learningRate", "expected a number"},
           BadText{R"({"bf16": "maybe"})", "t.bf16", "expected true or false"},
           BadText{R"({"bf16": 2})", "t.bf16", "expected true or false"},
           BadText{R"({"dataPath": 3})", "t.dataPath", "expected a string"},
           BadText{R"({"lora": {"r": 0}})", "t.lora.r", "at least 1"},
           BadText{R"({"modelMaxLength": 8, "maxSeqLength": 8})", "t.m", "twice"},
           BadText{R"([])", "t", "expected an object"},
       }) {
    const auto args = training_args_from_json(json::parse(bad.text), "t");
    ASSERT_FALSE(args) << bad.text;
    EXPECT_EQ(args.error().where.find(bad.where), 0u) << args.error().to_string();
    EXPECT_NE(args.error().to_string().find(bad.says), std::string::npos)
        << args.error().to_string();
    EXPECT_EQ(args.error().kind, ErrorKind::BadInput);
  }
}

}  // namespace
}  // namespace dsj
