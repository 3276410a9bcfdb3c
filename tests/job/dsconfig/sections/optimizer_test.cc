// Which optimizer a ds_config or training.optim means, and what is refused about it. The values of
// the parameters: tests/engine/zero/optimizers_oracle_test.cc.
#include <gtest/gtest.h>

#include "job/dsconfig/resolve.h"
#include "tests/job/dsconfig/said.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using Severity = Finding::Severity;

Resolution with_optimizer(const char* optimizer, int stage = 0, const json& more = json::object()) {
  json config = {{"train_micro_batch_size_per_gpu", 1},
                 {"optimizer", json::parse(optimizer)},
                 {"zero_optimization", {{"stage", stage}}}};
  config.update(more);
  return resolve(config, {}, {.world_size = 2});
}

TEST(OptimizerTest, EveryNameThatIsBuilt) {
  for (const char* name :
       {"Adam", "adamw", "LAMB", "lion", "Adagrad", "SGD", "RMSprop", "Adadelta", "Adamax", "NAdam",
        "RAdam", "ASGD", "Rprop", "onebitadam", "ZeroOneAdam", "OneBitLamb", "muon"}) {
    const json section = {{"type", name}};
    const Resolution r = with_optimizer(section.dump().c_str());
    EXPECT_TRUE(r.runnable()) << name << said(r, Severity::Error);
  }
}

TEST(OptimizerTest, OthersAreRefusedByNameWithTheReason) {
  for (const char* name : {"MuAdam", "MuAdamW", "MuSGD", "LBFGS", "SparseAdam", "Adafactor"}) {
    const json section = {{"type", name}};
    const Resolution r = with_optimizer(section.dump().c_str());
    const std::string refusal = said(r, Severity::Unsupported);
    EXPECT_NE(refusal.find(name), std::string::npos);
    EXPECT_GT(refusal.size(), 60u) << "the reason: " << refusal;
  }
  EXPECT_NE(said(with_optimizer(R"({"type": "sgd"})"), Severity::Error).find("SGD"),
            std::string::npos)
      << "torch's names are exact, as in DeepSpeed";
}

TEST(OptimizerTest, MuonHasTwoRates) {
  const auto rates = [](const char* params) {
    const std::string section = std::string(R"({"type": "Muon", "params": )") + params + "}";
    const Resolution r = with_optimizer(section.c_str(), 3);
    EXPECT_TRUE(r.runnable()) << said(r, Severity::Error) << said(r, Severity::Unsupported);
    return std::pair{r.config.optimizer.lr, r.config.muon.adam_lr};
  };
  EXPECT_EQ(rates("{}"), std::pair(0.02, 3e-4)) << "each half's own default";
  EXPECT_EQ(rates(R"({"lr": 0.5})"), std::pair(0.5, 0.5));
  EXPECT_EQ(rates(R"({"lr": 0.5, "adam_lr": 0.25})"), std::pair(0.5, 0.25));
  EXPECT_EQ(rates(R"({"lr": 0.5, "muon_lr": 0.25})"), std::pair(0.25, 0.5));
  EXPECT_EQ(rates(R"({"muon_lr": 0.25})"), std::pair(0.25, 3e-4));

  const auto defaults = with_optimizer(R"({"type": "Muon"})").config;
  EXPECT_EQ(defaults.optimizer.momentum, 0.95);
  EXPECT_EQ(defaults.optimizer.beta2, 0.95);
  EXPECT_EQ(defaults.optimizer.eps, 1e-10);
  EXPECT_EQ(defaults.muon.ns_steps, 5);
  EXPECT_EQ(defaults.muon.ns_method, NewtonSchulz::Gram);
  const Resolution given = with_optimizer(R"({"type": "Muon", "params": {"ns_method": "standard",
                                    "ns_steps": 7, "adam_w_mode": false}})");
  EXPECT_EQ(given.config.muon.ns_method, NewtonSchulz::Standard);
  EXPECT_EQ(given.config.muon.ns_steps, 7);
  EXPECT_FALSE(given.config.optimizer.decoupled_weight_decay);
  EXPECT_NE(said(given, Severity::Warning).find("ns_steps"), std::string::npos)
      << "DeepSpeed reads nothing of it";
}

TEST(OptimizerTest, MuonRefusesWhatItDoesNotDo) {
  const auto of = [](const char* params, const json& more = json::object()) {
    const std::string section = std::string(R"({"type": "Muon", "params": )") + params + "}";
    return with_optimizer(section.c_str(), 0, more);
  };
  EXPECT_NE(said(of(R"({"ns_method": "svd"})"), Severity::Error).find("ns_method"),
            std::string::npos);
  EXPECT_NE(said(of(R"({"ns_steps": 2.5})"), Severity::Error).find("ns_steps"), std::string::npos);
  EXPECT_NE(said(of(R"({"nesterov": true})"), Severity::Error).find("nesterov"), std::string::npos);
  EXPECT_NE(said(of(R"({"per_head_muon": true})"), Severity::Unsupported).find("per_head_muon"),
            std::string::npos);
  EXPECT_TRUE(of(R"({"per_head_muon": false})").runnable());
  // DeepSpeed's class shows a scheduler neither momentum nor betas.
  const json cycle = {
      {"scheduler",
       {{"type", "OneCycle"}, {"params", {{"cycle_min_lr", 1e-4}, {"cycle_max_lr", 1e-3}}}}}};
  const Resolution cycled = of("{}", cycle);
  EXPECT_TRUE(cycled.runnable()) << said(cycled, Severity::Error);
  EXPECT_FALSE(cycled.config.scheduler.one_cycle.momentum);
}

TEST(OptimizerTest, OneBitAdamHasDeepSpeedsDefaultsAndLimits) {
  const Resolution r = with_optimizer(R"({"type": "OneBitAdam", "params": {"freeze_step": 400,
                                "comm_backend_name": "nccl", "cuda_aware": true}})",
                                      1);
  EXPECT_TRUE(r.runnable()) << said(r, Severity::Error) << said(r, Severity::Unsupported);
  EXPECT_EQ(r.config.optimizer.freeze_step, 400);
  EXPECT_EQ(r.config.optimizer.lr, 1e-3);
  EXPECT_EQ(with_optimizer(R"({"type": "OneBitAdam"})").config.optimizer.freeze_step, 100000);
  for (const int stage : {2, 3}) {
    const std::string refusal =
        said(with_optimizer(R"({"type": "OneBitAdam"})", stage), Severity::Unsupported);
    EXPECT_NE(refusal.find("whole gradient"), std::string::npos) << refusal;
  }
  const Resolution offload = with_optimizer(
      R"({"type": "OneBitAdam"})", 1,
      {{"zero_optimization", {{"stage", 1}, {"offload_optimizer", {{"device", "cpu"}}}}}});
  EXPECT_NE(said(offload, Severity::Unsupported).find("offload"), std::string::npos);
  EXPECT_NE(said(with_optimizer(R"({"type": "OneBitAdam"})", 0, {{"gradient_allreduce_op", "sum"}}),
                 Severity::Unsupported)
                .find("mean"),
            std::string::npos);
  EXPECT_NE(said(with_optimizer(R"({"type": "OneBitAdam", "params": {"bias_correction": true}})"),
                 Severity::Warning)
                .find("never uses it"),
            std::string::npos);
  EXPECT_FALSE(with_optimizer(R"({"type": "OneBitAdam", "params": {"comm_backend_name": "gloo"}})")
                   .runnable())
      << "DeepSpeed knows no such backend";
}

TEST(OptimizerTest, ZeroOneAdamGoesUpToStageOne) {
  EXPECT_TRUE(with_optimizer(R"({"type": "ZeroOneAdam"})", 1).runnable());
  for (const int stage : {2, 3}) {
    const std::string refusal =
        said(with_optimizer(R"({"type": "ZeroOneAdam"})", stage), Severity::Unsupported);
    EXPECT_NE(refusal.find("whole gradient"), std::string::npos) << refusal;
  }
}
TEST(OptimizerTest, ZeroOneAdamSaysWhereStageOneSavesNothing) {
  const auto warned = [](int stage, int64_t steps) {
    const json config = {
        {"train_micro_batch_size_per_gpu", 1},
        {"optimizer", {{"type", "ZeroOneAdam"}, {"params", {{"var_freeze_step", 50}}}}},
        {"zero_optimization", {{"stage", stage}}}};
    const Resolution r = resolve(config, {.max_steps = steps}, {.world_size = 2});
    return said(r, Severity::Warning).find("after var_freeze_step") != std::string::npos;
  };
  EXPECT_TRUE(warned(1, 52)) << "count 52 is the first local step";
  EXPECT_FALSE(warned(1, 51));
  EXPECT_FALSE(warned(0, 52));
}
TEST(OptimizerTest, OneBitLambHasDeepSpeedsDefaultsAndLimits) {
  const auto defaults = with_optimizer(R"({"type": "OneBitLamb"})").config.optimizer;
  EXPECT_EQ(defaults.lr, 1e-3);
  EXPECT_EQ(defaults.freeze_step, 100000);
  EXPECT_EQ(defaults.max_coeff, 10);
  EXPECT_EQ(defaults.min_coeff, 0.01);
  EXPECT_EQ(defaults.coeff_beta, 0.9);
  EXPECT_EQ(defaults.factor_max, 4);
  EXPECT_EQ(defaults.factor_min, 0.5);
  EXPECT_EQ(defaults.factor_threshold, 0.1);
  const auto given =
      with_optimizer(R"({"type": "OneBitLamb", "params": {"coeff_beta": 0.5, "factor_max": 2,
      "factor_min": 0.25, "factor_threshold": 0.2, "max_coeff": 5, "min_coeff": 0.5,
      "freeze_step": 7}})",
                     1);
  EXPECT_TRUE(given.runnable()) << said(given, Severity::Error);
  EXPECT_EQ(given.config.optimizer.coeff_beta, 0.5);
  EXPECT_EQ(given.config.optimizer.factor_max, 2);
  EXPECT_EQ(given.config.optimizer.factor_min, 0.25);
  EXPECT_EQ(given.config.optimizer.factor_threshold, 0.2);
  EXPECT_EQ(given.config.optimizer.max_coeff, 5);
  EXPECT_EQ(given.config.optimizer.freeze_step, 7);
  for (const int stage : {2, 3})
    EXPECT_NE(said(with_optimizer(R"({"type": "OneBitLamb"})", stage), Severity::Unsupported)
                  .find("whole gradient"),
              std::string::npos);
  const auto wrong = with_optimizer(R"({"type": "OneBitLamb", "params": {"factor_min": 5}})");
  EXPECT_NE(said(wrong, Severity::Error).find("factor_min is above factor_max"), std::string::npos);
  const json fixed = {{"fp16", {{"enabled", false}, {"loss_scale", 128}}}};
  EXPECT_FALSE(with_optimizer(R"({"type": "OneBitLamb"})", 0, fixed).ok()) << "as Lamb";
  EXPECT_FALSE(with_optimizer(R"({"type": "OneBitAdam", "params": {"coeff_beta": 0.5}})").ok());
}

TEST(OptimizerTest, DefaultsAreTheClasses) {
  EXPECT_EQ(with_optimizer(R"({"type": "Adagrad"})").config.optimizer.eps, 1e-10);
  EXPECT_EQ(with_optimizer(R"({"type": "Adagrad"})").config.optimizer.lr, 1e-2);
  EXPECT_EQ(with_optimizer(R"({"type": "Adadelta"})").config.optimizer.lr, 1.0);
  EXPECT_EQ(with_optimizer(R"({"type": "Adamax"})").config.optimizer.lr, 2e-3);
  EXPECT_EQ(with_optimizer(R"({"type": "ASGD"})").config.optimizer.alpha, 0.75);
  EXPECT_EQ(with_optimizer(R"({"type": "RMSprop"})").config.optimizer.alpha, 0.99);
  EXPECT_FALSE(with_optimizer(R"({"type": "NAdam"})").config.optimizer.decoupled_weight_decay);
}

TEST(OptimizerTest, TorchsAdamWHasItsOwnWeightDecay) {
  EXPECT_EQ(with_optimizer(R"({"type": "AdamW"})").config.optimizer.weight_decay, 0.0);
  EXPECT_EQ(with_optimizer(R"({"type": "AdamW", "params": {"torch_adam": true}})")
                .config.optimizer.weight_decay,
            0.01);
}

TEST(OptimizerTest, ParametersOfAnotherClassAreErrors) {
  for (const auto& [text, path] : {
           std::pair{R"({"type": "SGD", "params": {"betas": [0.9, 0.99]}})", "betas"},
           std::pair{R"({"type": "Lion", "params": {"eps": 1e-8}})", "eps"},
           std::pair{R"({"type": "Rprop", "params": {"weight_decay": 0.1}})", "weight_decay"},
           std::pair{R"({"type": "AdamW", "params": {"momentum": 0.9}})", "momentum"},
           std::pair{
               R"({"type": "AdamW", "params": {"torch_adam": true, "bias_correction": true}})",
               "bias_correction"},
           std::pair{R"({"type": "SGD", "params": {"max_grad_norm": 1}})", "max_grad_norm"},
           std::pair{R"({"type": "SGD", "params": {"nesterov": true}})", "nesterov"},
           std::pair{R"({"type": "Rprop", "params": {"etas": [0.5, 0.9]}})", "etas"},
       }) {
    const std::string errors = said(with_optimizer(text), Severity::Error);
    EXPECT_NE(errors.find(std::string("optimizer.params.") + path + ":"), std::string::npos)
        << text << errors;
  }
}

TEST(OptimizerTest, ZeroTakesUntestedOptimizersWhenTold) {
  for (const char* untested : {"SGD", "Lamb", "RMSprop", "RAdam"}) {
    const std::string section = json{{"type", untested}}.dump();
    EXPECT_TRUE(with_optimizer(section.c_str(), 0).runnable()) << "stage 0 is not ZeRO";
    EXPECT_FALSE(with_optimizer(section.c_str(), 2).ok()) << untested;
    EXPECT_TRUE(
        with_optimizer(section.c_str(), 2, {{"zero_allow_untested_optimizer", true}}).runnable());
  }
  for (const char* tested : {"Adam", "Adagrad", "Lion"})
    EXPECT_TRUE(with_optimizer(json{{"type", tested}}.dump().c_str(), 3).runnable()) << tested;
}

TEST(OptimizerTest, LambNeedsTheDynamicLossScale) {
  const json fixed = {{"fp16", {{"enabled", false}, {"loss_scale", 128}}}};
  EXPECT_FALSE(with_optimizer(R"({"type": "Lamb"})", 0, fixed).ok());
  EXPECT_TRUE(with_optimizer(R"({"type": "AdamW"})", 0, fixed).ok());
}

TEST(OptimizerTest, HuggingFacesOptimWithoutASection) {
  const json config = {{"train_micro_batch_size_per_gpu", 1},
                       {"zero_optimization", {{"stage", 2}}}};
  TrainingArgs args;
  args.learning_rate = 3e-4;
  for (const auto& [optim, kind] :
       {std::pair{"adamw_torch", OptimizerKind::Adam},
        std::pair{"adamw_apex_fused", OptimizerKind::Adam}, std::pair{"sgd", OptimizerKind::Sgd},
        std::pair{"adagrad", OptimizerKind::Adagrad}, std::pair{"rmsprop", OptimizerKind::RMSprop},
        std::pair{"lion_32bit", OptimizerKind::Lion}}) {
    args.optim = optim;
    const Resolution r = resolve(config, args, {.world_size = 2});
    EXPECT_TRUE(r.runnable()) << optim << said(r, Severity::Error);
    EXPECT_EQ(r.config.optimizer.kind, kind) << optim;
    EXPECT_EQ(r.config.optimizer.lr, 3e-4);
  }
  args.weight_decay = 0.1;
  const Resolution grouped = resolve(config, args, {});
  EXPECT_EQ(said(grouped, Severity::Warning).find("weightDecay"), std::string::npos);
  EXPECT_FALSE(grouped.config.optimizer.decays_all) << "Trainer's optimizer has two groups";
  json with_section = config;
  with_section["optimizer"] = {{"type", "AdamW"}, {"params", {{"weight_decay", "auto"}}}};
  args.optim.reset();
  const Resolution one = resolve(with_section, args, {});
  EXPECT_TRUE(one.config.optimizer.decays_all) << "accelerate's DummyOptim has all in one group";
  EXPECT_EQ(one.config.optimizer.weight_decay, 0.1);
  args.optim = "adafactor";
  EXPECT_FALSE(said(resolve(config, args, {}), Severity::Unsupported).empty());
  args.optim = "adamw_toch";
  EXPECT_NE(said(resolve(config, args, {}), Severity::Error).find("adamw_torch"),
            std::string::npos);
}

TEST(OptimizerTest, AdamWWithMomentsInEightBits) {
  json config = {{"train_micro_batch_size_per_gpu", 1}, {"zero_optimization", {{"stage", 2}}}};
  TrainingArgs args;
  for (const char* optim : {"adamw_bnb_8bit", "adamw_8bit", "paged_adamw_8bit"}) {
    args.optim = optim;
    const Resolution r = resolve(config, args, {.world_size = 2});
    EXPECT_TRUE(r.runnable()) << said(r, Severity::Error);
    EXPECT_TRUE(r.config.optimizer.eight_bit) << optim;
    EXPECT_EQ(to_json(r.config.optimizer)["state_bits"], 8);
    EXPECT_EQ(said(r, Severity::Warning).contains("no paging"), args.optim->starts_with("paged_"));
  }
  for (const char* optim : {"adamw_torch", "paged_adamw_32bit", "sgd"}) {
    args.optim = optim;
    EXPECT_FALSE(resolve(config, args, {}).config.optimizer.eight_bit) << optim;
  }
  args.optim = "adamw_torch_8bit";  // torchao's: another rule
  EXPECT_FALSE(said(resolve(config, args, {}), Severity::Unsupported).empty());
  args.optim = "adamw_8bit";
  for (const auto& [section, stage] :
       {std::pair{"offload_optimizer", 2}, std::pair{"offload_param", 3}}) {
    json offloaded = config;
    offloaded["zero_optimization"] = {{"stage", stage}, {section, {{"device", "cpu"}}}};
    const Resolution r = resolve(offloaded, args, {});
    EXPECT_FALSE(r.runnable());
    EXPECT_TRUE(said(r, Severity::Unsupported).contains("offload_optimizer")) << section;
  }
  json sixteen = config;
  sixteen["bf16"] = {
      {"enabled", true}, {"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", true}};
  EXPECT_TRUE(said(resolve(sixteen, args, {}), Severity::Unsupported).contains("fp32 masters"));
  config["optimizer"] = {{"type", "AdamW"}};
  const Resolution r = resolve(config, args, {});
  EXPECT_TRUE(said(r, Severity::Warning).contains("no effect")) << "the section wins";
  EXPECT_FALSE(r.config.optimizer.eight_bit);
}

/// DeepSpeed's or Hugging Face's optimizer with DeepSpeed's or Hugging Face's schedule.
TEST(OptimizerTest, TheFourCombinations) {
  const json none = {{"train_micro_batch_size_per_gpu", 1}};
  const json optimizer = {{"type", "Lion"}, {"params", {{"lr", "auto"}}}};
  const json schedule = {{"type", "WarmupLR"}, {"params", {{"warmup_max_lr", "auto"}}}};
  for (const bool own_optimizer : {true, false}) {
    for (const bool own_schedule : {true, false}) {
      json config = none;
      if (own_optimizer) config["optimizer"] = optimizer;
      if (own_schedule) config["scheduler"] = schedule;
      TrainingArgs args;
      args.learning_rate = 0.25;
      args.max_steps = 100;
      args.warmup_steps = 10;
      if (!own_optimizer) args.optim = "sgd";
      if (!own_schedule) args.lr_scheduler_type = "cosine";
      const Resolution r = resolve(config, args, {});
      ASSERT_TRUE(r.runnable()) << said(r, Severity::Error);
      EXPECT_EQ(r.config.optimizer.kind, own_optimizer ? OptimizerKind::Lion : OptimizerKind::Sgd);
      EXPECT_EQ(r.config.optimizer.lr, 0.25);
      EXPECT_EQ(r.config.scheduler.type, own_schedule ? "WarmupLR" : "cosine");
      EXPECT_EQ(r.config.scheduler.max_lr, 0.25);
      EXPECT_EQ(r.config.scheduler.warmup_steps, 10);
    }
  }
}

TEST(OptimizerTest, SchedulesThatCycleMomentum) {
  const auto cycled = [](const char* optimizer, const char* schedule) {
    return with_optimizer(optimizer, 0, {{"scheduler", json::parse(schedule)}});
  };
  const char* one_cycle =
      R"({"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 0.2}})";
  EXPECT_TRUE(cycled(R"({"type": "AdamW"})", one_cycle).config.scheduler.one_cycle.momentum);
  const Resolution sgd = cycled(R"({"type": "SGD"})", one_cycle);
  EXPECT_TRUE(sgd.runnable());
  EXPECT_FALSE(sgd.config.scheduler.one_cycle.momentum) << "it writes betas, and SGD has none";
  EXPECT_FALSE(said(sgd, Severity::Warning).empty());
  EXPECT_FALSE(cycled(R"({"type": "NAdam"})", one_cycle).runnable());
  const char* cyclic = R"({"type": "CyclicLR", "params": {"base_lr": 0.1, "max_lr": 0.2}})";
  EXPECT_EQ(cycled(R"({"type": "SGD"})", cyclic).config.optimizer.momentum, 0.9)
      << "a buffer is kept although SGD's own momentum is 0";
  EXPECT_FALSE(cycled(R"({"type": "Adadelta"})", cyclic).ok()) << "torch refuses it";
}

TEST(OptimizerTest, SchedulersParametersAndRefusals) {
  const auto scheduler = [](const char* text) {
    return with_optimizer(R"({"type": "AdamW"})", 0, {{"scheduler", json::parse(text)}});
  };
  EXPECT_FALSE(scheduler(R"({"type": "StepLR", "params": {"gamma": 0.5}})").ok()) << "no step_size";
  EXPECT_FALSE(scheduler(R"({"type": "StepLR", "params": {"step_size": 5, "T_max": 3}})").ok());
  EXPECT_FALSE(scheduler(R"({"type": "WarmupCosineLR"})").ok()) << "no total_num_steps";
  for (const char* name :
       {"LambdaLR", "MultiplicativeLR", "SequentialLR", "ChainedScheduler", "ReduceLROnPlateau"})
    EXPECT_FALSE(
        said(scheduler(json{{"type", name}}.dump().c_str()), Severity::Unsupported).empty());
  EXPECT_EQ(scheduler(R"({"type": "WarmupDecayLR", "params": {"total_num_steps": 9}})")
                .config.scheduler.max_lr,
            1e-3)
      << "WarmupDecayLR's own default, not the optimizer's rate";
}

}  // namespace
}  // namespace dsj::dsconfig
