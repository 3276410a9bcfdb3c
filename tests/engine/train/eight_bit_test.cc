// AdamW with moments in 8 bits in whole steps: losses of bitsandbytes' AdamW8bit as transformers' Trainer makes it
// (tests/oracle/eight_bit_oracle.py), LoRA, checkpoints, and the bytes that the plan says.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "job/dsconfig/resolve.h"
#include "job/plan/eight_bit_plan.h"
#include "job/plan/memory_model.h"
#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

constexpr char kMixedModel[] = "eight-bit/model";

/// As `--optim adamw_bnb_8bit` resolves.
dsconfig::ResolvedConfig eight_bit_config(int stage, const nlohmann::json& numbers, int micro) {
  TrainingArgs args;
  args.optim = "adamw_bnb_8bit";
  args.learning_rate = numbers["lr"].get<double>();
  args.adam_beta1 = numbers["betas"][0].get<double>();
  args.adam_beta2 = numbers["betas"][1].get<double>();
  args.adam_epsilon = numbers["eps"].get<double>();
  args.weight_decay = numbers["weight_decay"].get<double>();
  args.max_grad_norm = 1.0;
  const auto resolution = dsconfig::resolve(
      {{"train_micro_batch_size_per_gpu", micro}, {"zero_optimization", {{"stage", stage}}}}, args,
      {.world_size = 2 / micro});
  EXPECT_TRUE(resolution.runnable()) << resolution.findings.front().message;
  auto config = resolution.config;
  EXPECT_TRUE(config.optimizer.eight_bit);
  config.zero.param_persistence_threshold = 64;
  return config;
}

TEST(EightBitSteps, LossesAreThoseOfBitsandbytes) {
  std::ifstream file(fixture("eight-bit/record.json"));
  const auto record = nlohmann::json::parse(file)["run"];
  const auto line = [](const nlohmann::json& rows, const char* key) {
    std::vector<int64_t> all;
    for (const auto& row : rows)
      for (const int64_t id : row[key]) all.push_back(id);
    return at::tensor(all).view({static_cast<int64_t>(rows.size()), -1});
  };
  for (const int world : {1, 2}) {
    for (const int stage : {0, 1, 2, 3}) {
      std::vector<double> losses;
      testing_support::run_ranks(world, [&](comm::Collectives& group, memory::Ledger&) {
        Rank rank({.model = kMixedModel,
                   .world = world,
                   .config = eight_bit_config(stage, record, 2 / world)},
                  group);
        rank.load(kMixedModel);
        for (const auto& flat : rank.state.plan().flats)
          for (const auto& slot : flat.slots())
            EXPECT_EQ(plan::has_eight_bits(slot) ? 8 : 32, record["bits"][slot.name].get<int>())
                << slot.name;
        for (size_t step = 0; step < record["loss"].size(); ++step) {
          nlohmann::json rows = nlohmann::json::array();
          int64_t targets = 0;
          for (size_t row = 0; row < 2; ++row) {
            const auto& one = record["rows"][(2 * step + row) % record["rows"].size()];
            for (size_t i = 1; i < one["labels"].size(); ++i) targets += one["labels"][i] != -100;
            if (world == 1 || row == static_cast<size_t>(group.rank())) rows.push_back(one);
          }
          const std::vector<models::MicroBatch> batches{
              testing_support::rectangle(line(rows, "input_ids"), line(rows, "labels"))};
          const auto done = rank.stepper.run({.micro_batches = batches,
                                              .step = static_cast<int64_t>(step),
                                              .rates = {.lr = rank.config.optimizer.lr},
                                              .targets = targets});
          if (group.rank() == 0) losses.push_back(done.loss);
        }
      });
      const double from_theirs = apart(losses, record["loss"].get<std::vector<double>>());
      const double from_32_bits = apart(losses, record["loss_32"].get<std::vector<double>>());
      std::cout << "eight bits: world " << world << " stage " << stage << " " << from_theirs
                << ", from 32 bits " << from_32_bits << std::endl;
      // Rounding decides a code here and there. bitsandbytes' own two ways to find codes lie 1.5e-4
      // apart, moments in 32 bits 5.8e-4.
      EXPECT_LT(from_theirs, 6e-5);
      EXPECT_GT(from_32_bits, 3e-4) << "else the moments are not in 8 bits";
    }
  }
}

SmallRun eight_bits(int world, int stage) {
  SmallRun run{.model = kMixedModel, .world = world, .steps = 6, .config = small_config(stage)};
  run.config.optimizer.eight_bit = true;
  run.config.zero.reduce_bucket_size = 9000;  // several chunks per flat
  return run;
}

TEST(EightBitSteps, SixteenBitsTrainAtEveryStage) {
  using dsconfig::Precision;
  for (const auto precision : {Precision::Bf16, Precision::Fp16}) {
    RunResult whole;
    for (const int stage : {0, 1, 2, 3}) {
      auto run = eight_bits(2, stage);
      run.config.precision = run.config.communication_dtype = run.config.grad_accum_dtype =
          precision;
      run.config.loss_scale = {.initial = std::ldexp(1.0, 14), .window = 4, .hysteresis = 1};
      const auto result = run_small(run);
      if (stage == 0) whole = result;
      EXPECT_LT(apart(result, whole), 2e-2) << stage;
    }
  }
}

TEST(EightBitSteps, AdaptersAlone) {
  auto run = eight_bits(2, 0);
  run.lora = LoraArgs{.r = 64, .target_pattern = "all-linear"};
  const auto whole = run_small(run);
  EXPECT_NE(whole.losses.back(), whole.losses.front());
  auto plain = run;
  plain.config.optimizer.eight_bit = false;
  const auto wide = run_small(plain);
  EXPECT_LT(apart(whole, wide), 1e-2);
  EXPECT_NE(whole.losses.back(), wide.losses.back());
  for (const int stage : {1, 2, 3}) {
    run.config.zero.stage = stage;
    EXPECT_LT(apart(run_small(run), whole), 2e-4) << stage;
  }
}

TEST(EightBitSteps, ThePlanKnowsTheBytes) {
  for (const int world : {1, 2, 3}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const auto precision : {dsconfig::Precision::Fp32, dsconfig::Precision::Bf16}) {
        auto run = eight_bits(world, stage);
        run.config.precision = run.config.communication_dtype = run.config.grad_accum_dtype =
            precision;
        std::atomic<int64_t> most = 0;
        int64_t planned = 0;
        measure_ranks(run, [&](Rank& rank, const memory::Ledger& ledger) {
          const auto bytes = plan::memory_model({.model = rank.model,
                                                 .config = rank.config,
                                                 .world = run.world,
                                                 .tokens_per_row = 24})
                                 .bytes;
          const int64_t own = ledger.peak(memory::Class::Optimizer);
          EXPECT_LE(own, bytes.optimizer) << stage;
          EXPECT_LE(ledger.peak(memory::Class::Buckets), bytes.buckets) << stage;
          if (rank.collectives.rank() == 0) planned = bytes.optimizer;
          for (int64_t seen = most; seen < own && !most.compare_exchange_weak(seen, own);) {
          }
        });
        EXPECT_EQ(most, planned) << "stage " << stage << " world " << world;
      }
    }
  }
}

}  // namespace
}  // namespace dsj::train
