#include "job/layout/trained_part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <regex>
#include <set>

#include "tests/job/layout/tiny_qwen2.h"

namespace dsj::layout {
namespace {

using Names = std::vector<std::string>;

ModelConfig tiny() {
  return tiny_qwen2(false, 2);
}

Names names_of(const ModelConfig& model) {
  Names names;
  for (const auto& unit : units_of(model))
    for (const auto& parameter : unit.parameters) names.push_back(parameter.name);
  return names;
}

Names trained_by(const ModelConfig& model, const TrainingArgs& training) {
  const auto frozen = frozen_parameters(model, training);
  EXPECT_TRUE(frozen) << frozen.error().to_string();
  Names trained = names_of(model);
  std::erase_if(trained, [&](const std::string& name) {
    return std::ranges::count(frozen.value_or(Names()), name) > 0;
  });
  return trained;
}

std::string refusal(const TrainingArgs& training) {
  const auto frozen = frozen_parameters(tiny(), training);
  return frozen ? "" : frozen.error().where + ": " + frozen.error().message;
}

TEST(TrainedPart, LayersFromEitherEnd) {
  const ModelConfig model = tiny();
  ASSERT_EQ(model.num_layers, 2);
  EXPECT_EQ(trained_by(model, {}), names_of(model));
  TrainingArgs last, first, more;
  last.trainable_layers = 1;
  first.trainable_layers = -1;
  more.trainable_layers = 9;
  for (const std::string& name : trained_by(model, last))
    EXPECT_TRUE(name.starts_with("model.layers.1.")) << name;
  for (const std::string& name : trained_by(model, first))
    EXPECT_TRUE(name.starts_with("model.layers.0.")) << name;
  const Names both = trained_by(model, more);
  EXPECT_EQ(both.size(), trained_by(model, last).size() + trained_by(model, first).size());
  last.trainable_parameters = R"(.*\.\d+\.mlp|lm_head)";
  EXPECT_EQ(trained_by(model, last),
            (Names{"model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight",
                   "model.layers.1.mlp.down_proj.weight", "lm_head.weight"}));
}

/// Whole modules that are drawn: what is named is trained, everything else is frozen, and units_of()
/// freezes the same parameters.
TEST(TrainedPart, AnySetOfModules) {
  const ModelConfig model = tiny();
  std::set<std::string> modules;
  for (const std::string& name : names_of(model)) modules.insert(module_of(name));
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    TrainingArgs training;
    std::set<std::string> chosen;
    std::string pattern;
    for (const std::string& module : modules)
      if (random() % 3 == 0 && chosen.insert(module).second)
        pattern += (pattern.empty() ? "" : "|") +
                   std::regex_replace(module, std::regex("\\."), "\\.") + "\\.(?:weight|bias)$";
    if (chosen.empty() || chosen.size() == modules.size()) continue;
    training.trainable_parameters = pattern;
    const Names trained = trained_by(model, training);
    for (const std::string& name : names_of(model))
      EXPECT_EQ(std::ranges::count(trained, name), chosen.contains(module_of(name)) ? 1 : 0)
          << name;
    const auto part = all_but(model, *frozen_parameters(model, training));
    ASSERT_TRUE(part) << part.error().to_string();
    EXPECT_FALSE(part->adapts());
    for (const auto& unit : units_of(model, *part))
      for (const auto& parameter : unit.parameters)
        EXPECT_EQ(parameter.frozen, !chosen.contains(module_of(parameter.name))) << parameter.name;
  }
}

TEST(TrainedPart, WhatIsRefused) {
  TrainingArgs training;
  training.trainable_layers = 0;
  EXPECT_EQ(refusal(training), "trainableLayers: found 0, expected a number of layers");
  training.trainable_layers.reset();
  training.trainable_parameters = "model.layers.(";
  EXPECT_TRUE(refusal(training).starts_with("trainableParameters: \"model.layers.(\" is not"));
  training.trainable_parameters = "layers";
  EXPECT_EQ(refusal(training),
            "trainableParameters: no parameter's name begins with a match of \"layers\"");
  training.trainable_parameters = "model.layers.0.self_attn.q_proj.bias";
  EXPECT_EQ(refusal(training),
            "trainableParameters: only a part of the module \"model.layers.0.self_attn.q_proj\" is "
            "frozen");
  EXPECT_EQ(all_but(tiny(), {"a.weight"}).error().message,
            "\"a.weight\" is frozen, and the model has no such parameter");
  EXPECT_EQ(all_but(tiny(), names_of(tiny())).error().message, "every parameter is frozen");
}

}  // namespace
}  // namespace dsj::layout
