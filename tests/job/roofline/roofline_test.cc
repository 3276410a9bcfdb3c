#include "job/roofline/roofline.h"

#include <gtest/gtest.h>

#include <set>

#include "job/layout/lora.h"
#include "job/plan/memory_model.h"

namespace dsj::roofline {
namespace {

using dsconfig::OffloadDevice;
using dsconfig::OptimizerKind;
using dsconfig::Precision;

/// Qwen2.5-1.5B's sizes.
plan::MemoryInput example(int stage, int world) {
  plan::MemoryInput input;
  input.model = {.model_type = "qwen2",
                 .vocab_size = 151936,
                 .hidden_size = 1536,
                 .intermediate_size = 8960,
                 .num_layers = 28,
                 .num_heads = 12,
                 .num_kv_heads = 2,
                 .head_dim = 128,
                 .tied = true};
  input.config.precision = input.config.communication_dtype = input.config.grad_accum_dtype =
      Precision::Bf16;
  input.config.micro_batch_size = 8;
  input.config.zero.stage = stage;
  input.config.zero.overlap_comm = true;
  input.world = world;
  input.tokens_per_row = 1024;
  return input;
}

const Gpu& h100() {
  return *find_gpu("h100");
}

const Part& part(const Roofline& line, const std::string& name) {
  for (const Part& one : line.parts)
    if (one.name == name) return one;
  ADD_FAILURE() << name;
  return line.parts[0];
}

TEST(Gpus, TheTableIsComplete) {
  EXPECT_EQ(gpus().size(), 9u);
  std::set<std::string> names;
  for (const Gpu& gpu : gpus()) {
    EXPECT_EQ(find_gpu(gpu.name), &gpu);
    EXPECT_TRUE(names.insert(gpu.name).second);
    for (const double fact :
         {gpu.flops, gpu.bandwidth, gpu.link, gpu.host_link, gpu.network, gpu.host_memory})
      EXPECT_GT(fact, 1e9) << gpu.name;
    for (const double share :
         {gpu.product_share, gpu.attention_share, gpu.bandwidth_share, gpu.link_share})
      EXPECT_TRUE(share > 0 && share <= 1) << gpu.name;
    EXPECT_GT(usable_memory(gpu), gpu.memory * 9 / 10);
  }
  EXPECT_EQ(find_gpu("v100"), nullptr);
}

/// 6 operations per weight in a product and token, and attention's.
TEST(RooflineTest, NeededOperationsFollowTheFormula) {
  const plan::MemoryInput input = example(0, 1);
  const Roofline line = roofline(input, h100(), 1);
  const auto& m = input.model;
  const double tokens = 8 * 1024, targets = 8 * 1023, pairs = 8 * 1024.0 * 1025 / 2;
  const double layer = double(m.hidden_size) * (m.query_size() * 2 + 2 * m.kv_size()) +
                       3.0 * double(m.hidden_size) * double(m.intermediate_size);
  const double head = double(m.vocab_size) * double(m.hidden_size);
  const double attention = 7 * 2.0 * double(m.query_size()) * pairs;
  const double want = 6 * (28 * layer * tokens + head * targets) + 28 * attention;
  EXPECT_NEAR(line.needed_flops / want, 1, 1e-12);
  EXPECT_EQ(line.tokens, tokens);
  EXPECT_NEAR(line.share_of_peak, want / line.seconds / h100().flops, 1e-9);
  EXPECT_LT(line.share_of_peak, h100().product_share);
}

TEST(RooflineTest, TheStepIsTheSumOfWhatIsNotHidden) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool overlap : {false, true}) {
      plan::MemoryInput input = example(stage, 8);
      input.config.zero.overlap_comm = overlap;
      input.config.gradient_accumulation_steps = 2;
      const Roofline line = roofline(input, h100(), 8);
      double shown = 0;
      for (const Part& one : line.parts) {
        EXPECT_GE(one.hidden, 0) << one.name;
        EXPECT_LE(one.hidden, one.seconds + 1e-12) << one.name;
        shown += one.seconds - one.hidden;
      }
      EXPECT_NEAR(shown / line.seconds, 1, 1e-9) << "stage " << stage;
    }
  }
}

TEST(RooflineTest, OverlapHidesReductionsAndSlowLinksShow) {
  plan::MemoryInput together = example(2, 8), apart = together;
  apart.config.zero.overlap_comm = false;
  const Roofline hides = roofline(together, h100(), 8), waits = roofline(apart, h100(), 8);
  EXPECT_EQ(part(hides, "collectives").seconds, part(waits, "collectives").seconds);
  EXPECT_GT(part(hides, "collectives").hidden, part(waits, "collectives").hidden);
  EXPECT_LT(hides.seconds, waits.seconds);
  const Roofline network = roofline(together, h100(), 4);  // two machines
  EXPECT_GT(part(network, "collectives").seconds, 5 * part(hides, "collectives").seconds);
  EXPECT_EQ(part(network, "collectives").bytes, part(hides, "collectives").bytes);
}

TEST(RooflineTest, BytesOnTheLinksAreTheMemoryModels) {
  for (const int stage : {0, 1, 2, 3}) {
    plan::MemoryInput input = example(stage, 8);
    input.config.gradient_accumulation_steps = 2;
    const auto wire = plan::memory_model(input).wire;
    const Roofline line = roofline(input, h100(), 8);
    EXPECT_EQ(part(line, "collectives").bytes,
              double(wire.gradient_bytes + wire.parameter_bytes + 8))
        << "and the step's sums; stage " << stage;
  }
}

TEST(RooflineTest, RecomputeCostsTimeAndIsNotNeeded) {
  plan::MemoryInput input = example(0, 1);
  const Roofline keeps = roofline(input, h100(), 1);
  input.recompute = true;
  const Roofline again = roofline(input, h100(), 1);
  EXPECT_EQ(again.needed_flops, keeps.needed_flops);
  const auto& m = input.model;  // all of a layer's products but the last
  const int64_t weights = m.hidden_size * (2 * m.query_size() + 2 * m.kv_size()) +
                          m.hidden_size * 2 * m.intermediate_size;
  const double repeated =
      part(again, "matrix products").flops - part(keeps, "matrix products").flops;
  EXPECT_NEAR(repeated / (2.0 * 8 * 1024 * double(m.num_layers * weights)), 1, 0.001);
  EXPECT_LT(again.share_of_peak, keeps.share_of_peak);
}

TEST(RooflineTest, LoraNeedsNoGradientsOfFrozenWeights) {
  plan::MemoryInput input = example(0, 1);
  const Roofline whole = roofline(input, h100(), 1);
  input.lora = layout::resolve_lora(input.model, {.r = 16}).value();
  const Roofline lora = roofline(input, h100(), 1);
  EXPECT_LT(lora.needed_flops, 0.72 * whole.needed_flops);
  EXPECT_GT(lora.needed_flops, 0.6 * whole.needed_flops);
  EXPECT_LT(part(lora, "matrix products").seconds, part(whole, "matrix products").seconds);
}

TEST(RooflineTest, OffloadCopiesHideBehindTheStepAndItsUpdateDoesNot) {
  for (const auto& [world, steps] : {std::pair{8, 1}, {8, 3}, {1, 3}}) {
    plan::MemoryInput input = example(2, world);
    input.config.gradient_accumulation_steps = steps;
    input.config.offload.optimizer.device = OffloadDevice::Cpu;
    const Roofline line = roofline(input, h100(), 8);
    const double shard = double(plan::memory_model(input).parameters) / world;
    const Part& copies = part(line, "copies to and from the host");
    EXPECT_NEAR(copies.bytes / ((4 * steps) * shard), 1, 0.01)
        << "16-bit gradients down, back for each further micro-step, 16-bit parameters up";
    EXPECT_NEAR(part(line, "update in host memory").bytes / (28 * shard), 1, 0.01);
    EXPECT_EQ(part(line, "update in host memory").hidden, 0);
    EXPECT_GT(copies.hidden, 0.5 * copies.seconds);
    EXPECT_LT(copies.hidden, copies.seconds)
        << "the last gradient's way, and the first parameters'";
  }
}

TEST(RooflineTest, ASmallModelIsBoundByLaunches) {
  plan::MemoryInput input = example(0, 1);
  input.model.hidden_size = 64, input.model.num_heads = 4, input.model.head_dim = 16;
  input.model.intermediate_size = 128, input.model.vocab_size = 512;
  const Roofline line = roofline(input, h100(), 1);
  EXPECT_EQ(line.bound, "launches");
  EXPECT_GE(line.seconds, kLaunch * double(line.launches) - 1e-12);
}

TEST(RooflineTest, WhatIsNotCountedSaysSo) {
  EXPECT_FALSE(uncounted(example(3, 8)));
  const auto refused = [](auto change) {
    plan::MemoryInput input = example(2, 2);
    change(input);
    const auto why = uncounted(input);
    EXPECT_TRUE(why && !why->what.empty() && !why->hint.empty());
    return why ? why->path : "";
  };
  EXPECT_EQ(refused([](auto& i) { i.config.precision = Precision::Fp32; }), "bf16.enabled");
  EXPECT_EQ(refused([](auto& i) { i.model.head_dim = 12; }), "spec.training.modelNameOrPath");
  EXPECT_EQ(refused([](auto& i) { i.model.scores_cap = 50; }), "spec.training.modelNameOrPath");
  EXPECT_EQ(refused([](auto& i) { i.model.query_growth = 0.1; }), "spec.training.modelNameOrPath");
  EXPECT_EQ(refused([](auto& i) { i.model.activation = layout::Activation::Xielu; }),
            "spec.training.modelNameOrPath");
  EXPECT_EQ(refused([](auto& i) { i.model.dropout.residual = 0.1; }),
            "spec.training.modelNameOrPath");
  EXPECT_EQ(refused([](auto& i) { i.lora = LoraArgs{.dropout = 0.1}; }),
            "spec.training.lora.dropout");
  EXPECT_EQ(refused([](auto& i) { i.lora = LoraArgs{.load_in_4bit = true}; }),
            "spec.training.lora.loadIn4bit");
  EXPECT_EQ(refused([](auto& i) { i.config.sparse_gradients = true; }), "sparse_gradients");
  const auto coded = [&](bool dsconfig::ZeroConfig::*key) {
    return refused([&](auto& i) { i.config.zero.stage = 3, i.config.zero.*key = true; });
  };
  EXPECT_EQ(coded(&dsconfig::ZeroConfig::quantized_weights),
            "zero_optimization.zero_quantized_weights");
  EXPECT_EQ(coded(&dsconfig::ZeroConfig::quantized_frozen_weights),
            "zero_optimization.zero_quantized_nontrainable_weights");
  EXPECT_EQ(coded(&dsconfig::ZeroConfig::quantized_gradients),
            "zero_optimization.zero_quantized_gradients");
  EXPECT_EQ(refused([](auto& i) { i.config.offload.optimizer.device = OffloadDevice::Nvme; }),
            "zero_optimization");
  EXPECT_EQ(refused([](auto& i) { i.config.data_efficiency.random_ltd.emplace(); }),
            "data_efficiency.data_routing.random_ltd");
  EXPECT_EQ(refused([](auto& i) { i.config.master_dtype = Precision::Bf16; }),
            "bf16.bf16_master_weights_and_grads");
  EXPECT_EQ(refused([](auto& i) { i.recompute = i.config.cpu_checkpointing = true; }),
            "activation_checkpointing.cpu_checkpointing");
  EXPECT_EQ(refused([](auto& i) { i.config.optimizer.eight_bit = true; }), "spec.training.optim");
  for (const auto kind : {OptimizerKind::Muon, OptimizerKind::Lamb, OptimizerKind::OneBitAdam,
                          OptimizerKind::OneBitLamb, OptimizerKind::ZeroOneAdam})
    EXPECT_EQ(refused([&](auto& i) { i.config.optimizer.kind = kind; }), "optimizer.type");
}

}  // namespace
}  // namespace dsj::roofline
