// The descriptors: that each is whole, and agrees with the key table and with Hugging Face's names.
#include "job/dsconfig/config/optimizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "job/dsconfig/keys/keys.h"

namespace dsj::dsconfig {
namespace {

TEST(OptimizerDescriptors, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const Optimizer& one : kOptimizers) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    EXPECT_EQ(find_optimizer(one.name), &one);
    for (const std::string& optim : words_of(one.trainer_names)) {
      EXPECT_EQ(find_trainer_optimizer(optim), &one) << optim;
      EXPECT_TRUE(std::ranges::find(trainer_optimizers(), optim) != trainer_optimizers().end())
          << optim << " is none of Hugging Face's";
    }
  }
  EXPECT_EQ(find_optimizer("adamw")->name, "AdamW") << "DeepSpeed's own, in any case";
  EXPECT_EQ(find_optimizer("sgd"), nullptr) << "torch's names are exact";
}

TEST(OptimizerDescriptors, EveryParameterHasItsRow) {
  std::set<std::string> taken;
  for (const Optimizer& one : kOptimizers)
    for (const std::string_view list : {one.takes, one.cpu_takes, one.torch_takes})
      for (const std::string& name : words_of(list)) {
        taken.insert(name);
        EXPECT_NE(find_key("optimizer.params." + name), nullptr) << one.name << ": " << name;
      }
  for (const OptimizerParameter& parameter : kOptimizerParameters)
    EXPECT_TRUE(taken.contains(std::string(parameter.name))) << parameter.name << ": nobody's";
}

TEST(OptimizerDescriptors, WhatIsBuiltHasStatesAndParameters) {
  int built = 0;
  for (const Optimizer& one : kOptimizers) {
    EXPECT_EQ(one.takes.empty(), !one.refusal.empty()) << one.name;
    if (!one.refusal.empty()) continue;
    ++built;
    EXPECT_TRUE(takes(one.defaults.kind, "lr")) << one.name;
    OptimizerConfig config = one.defaults;
    config.momentum = 0.9;
    EXPECT_FALSE(states_of(config).empty()) << one.name;
    EXPECT_EQ(find_optimizer(name_of(config))->defaults.kind, one.defaults.kind);
    const nlohmann::json shown = to_json(config);
    EXPECT_EQ(shown["lr"], config.lr);
    EXPECT_EQ(shown.contains("betas"), takes(config.kind, "betas")) << one.name;
  }
  EXPECT_GE(built, 13);
}

TEST(OptimizerDescriptors, StatesFollowTheConfig) {
  OptimizerConfig config{.kind = OptimizerKind::RMSprop};
  const auto names = [&] {
    std::string text;
    for (const StateSpec& state : states_of(config)) text += state.name + " ";
    return text;
  };
  EXPECT_EQ(names(), "square_avg ");
  config.centered = true;
  EXPECT_EQ(names(), "square_avg grad_avg ");
  config.momentum = 0.9;
  EXPECT_EQ(names(), "square_avg momentum_buffer grad_avg ");
  config = {.kind = OptimizerKind::Adagrad, .initial_accumulator = 0.25};
  ASSERT_EQ(names(), "sum ");
  EXPECT_EQ(states_of(config)[0].initial, 0.25);
}

}  // namespace
}  // namespace dsj::dsconfig
