// Settings that conflict with a base in 4 bits.
#include <gtest/gtest.h>

#include "job/dsconfig/resolve.h"
#include "tests/job/dsconfig/said.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using Severity = Finding::Severity;

TrainingArgs on_a_base_in_4_bits(const char* compute_dtype = "") {
  TrainingArgs args;
  args.lora = LoraArgs{.load_in_4bit = true, .compute_dtype = compute_dtype};
  return args;
}

json at_stage(int stage) {
  return {{"train_micro_batch_size_per_gpu", 1}, {"zero_optimization", {{"stage", stage}}}};
}

TEST(BaseIn4Bits, IsRefusedAtStageThreeAlone) {
  for (const int stage : {0, 1, 2})
    EXPECT_TRUE(resolve(at_stage(stage), on_a_base_in_4_bits(), {.world_size = 2}).runnable());
  for (const int world : {1, 2}) {
    const Resolution r = resolve(at_stage(3), on_a_base_in_4_bits(), {.world_size = world});
    EXPECT_FALSE(r.runnable());
    EXPECT_TRUE(said(r, Severity::Unsupported).contains("training.lora.loadIn4bit"));
    EXPECT_TRUE(said(r, Severity::Unsupported).contains("stage 3"));
  }
  TrainingArgs sixteen = on_a_base_in_4_bits();
  sixteen.lora->load_in_4bit = false;
  EXPECT_TRUE(resolve(at_stage(3), sixteen, {.world_size = 2}).runnable());
}

TEST(BaseIn4Bits, ItsComputeTypeIsThatOfTheProducts) {
  const std::pair<json, const char*> types[] = {
      {json::object(), "float32"},
      {{{"bf16", {{"enabled", true}}}}, "bfloat16"},
      {{{"fp16", {{"enabled", true}}}}, "float16"},
      {{{"torch_autocast", {{"enabled", true}, {"dtype", "bfloat16"}}}}, "bfloat16"}};
  for (const auto& [section, products] : types) {
    for (const char* asked : {"float32", "bfloat16", "float16"}) {
      json config = at_stage(1);
      config.update(section);
      const Resolution r = resolve(config, on_a_base_in_4_bits(asked), {.world_size = 1});
      EXPECT_EQ(said(r, Severity::Error).contains("bnb4bitComputeDtype"),
                std::string(asked) != products)
          << section.dump() << " " << asked << ": " << said(r, Severity::Error);
    }
  }
}

TEST(LoraPlus, ReachesTheOptimizersThatHaveIt) {
  TrainingArgs args;
  args.lora = LoraArgs{.lr_ratio = 16};
  for (const char* name : {"AdamW", "SGD", "Lion", "Adagrad"}) {
    json config = at_stage(2);
    config["optimizer"] = {{"type", name}, {"params", {{"lr", 1e-3}}}};
    const Resolution r = resolve(config, args, {.world_size = 2});
    EXPECT_EQ(r.config.optimizer.lora_plus_ratio, 16) << name;
    EXPECT_FALSE(said(r, Severity::Unsupported).contains("LoRA+")) << name;
  }
  for (const char* name : {"Lamb", "Muon", "OneBitAdam", "Rprop"}) {
    json config = at_stage(1);
    config["optimizer"] = {{"type", name}, {"params", {{"lr", 1e-3}}}};
    const Resolution r = resolve(config, args, {.world_size = 2});
    EXPECT_TRUE(said(r, Severity::Unsupported).contains("training.lora.loraplusLrRatio")) << name;
  }
  args.lora->lr_ratio = 1;
  EXPECT_EQ(resolve(at_stage(2), args, {.world_size = 2}).config.optimizer.lora_plus_ratio, 1);
}

TEST(PartOfTheModel, DoesNotGoWithAdapters) {
  TrainingArgs args;
  args.trainable_layers = 2;
  EXPECT_TRUE(resolve(at_stage(3), args, {.world_size = 2}).runnable());
  args.lora = LoraArgs{};
  Resolution r = resolve(at_stage(1), args, {.world_size = 2});
  EXPECT_FALSE(r.runnable());
  EXPECT_TRUE(said(r, Severity::Error).contains("training.trainableLayers"));
  args.trainable_parameters = "lm_head";
  r = resolve(at_stage(1), args, {.world_size = 2});
  EXPECT_TRUE(said(r, Severity::Error).contains("training.trainableParameters"));
}

}  // namespace
}  // namespace dsj::dsconfig
