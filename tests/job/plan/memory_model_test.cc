#include "job/plan/memory_model.h"

#include <gtest/gtest.h>

#include "job/plan/eight_bit_plan.h"
#include "job/plan/muon_plan.h"
#include "job/plan/zero_plan.h"
#include "tests/job/plan/example.h"

namespace dsj::plan {
namespace {

using dsconfig::OffloadDevice;
using dsconfig::OptimizerKind;
using dsconfig::Precision;

MemoryInput memory_example(int stage, int world, Precision precision = Precision::Bf16) {
  MemoryInput input;
  input.model = example_model();
  input.config.micro_batch_size = 2;
  input.config.gradient_accumulation_steps = 1;
  input.config.precision = precision;
  input.config.grad_accum_dtype = input.config.communication_dtype = precision;
  input.config.zero.stage = stage;
  input.config.zero.param_persistence_threshold = 0;
  input.world = world;
  input.tokens_per_row = 64;
  return input;
}

TEST(MemoryModelTest, StagesShardWhatTheySay) {
  const int64_t p = memory_model(memory_example(0, 4)).parameters;
  ASSERT_EQ(p % 128, 0);
  const MemoryModel stage0 = memory_model(memory_example(0, 4)),
                    stage1 = memory_model(memory_example(1, 4)),
                    stage2 = memory_model(memory_example(2, 4)),
                    stage3 = memory_model(memory_example(3, 4));
  EXPECT_EQ(stage0.bytes.parameters, 2 * p);
  EXPECT_EQ(stage1.bytes.parameters, 2 * p);
  EXPECT_EQ(stage3.bytes.parameters, 2 * p / 4 + 2 * stage3.peak_live_parameters);
  EXPECT_EQ(stage0.bytes.optimizer, 12 * p);
  for (const MemoryModel* sharded : {&stage1, &stage2, &stage3})
    EXPECT_EQ(sharded->bytes.optimizer, 12 * p / 4);
  EXPECT_EQ(stage0.bytes.gradients, 2 * p);
  EXPECT_GE(stage2.bytes.gradients, 2 * p / 4);
  EXPECT_LT(stage2.bytes.gradients, p) << "whole gradients of a unit or two only";
  MemoryInput twice1 = memory_example(1, 4),
              twice2 = memory_example(2, 4);  // stage 1 waits for the last one
  twice1.config.gradient_accumulation_steps = twice2.config.gradient_accumulation_steps = 2;
  EXPECT_GE(memory_model(twice1).bytes.gradients, 2 * p);
  EXPECT_LT(memory_model(twice2).bytes.gradients, p + p / 2);
}

TEST(MemoryModelTest, ACurriculumCountsWithTheLongestRowThatTheRunComesTo) {
  MemoryInput input = memory_example(2, 4);
  const int64_t whole = memory_model(input).bytes.activations;
  input.config.data_efficiency.row_length = {
      "seqlen", {.min = 8, .max = 48, .total_steps = 100, .difficulty_step = 8}};
  MemoryInput shorter = memory_example(2, 4);
  shorter.tokens_per_row = 48;
  EXPECT_EQ(memory_model(input).bytes.activations, memory_model(shorter).bytes.activations)
      << "how long the run is is not known: as long as rows get";
  input.config.total_steps = 50;
  shorter.tokens_per_row = 24;
  EXPECT_EQ(memory_model(input).bytes.activations, memory_model(shorter).bytes.activations);
  input.config.data_efficiency.row_length->schedule.max = 4096;
  input.config.total_steps = 100;
  EXPECT_EQ(memory_model(input).bytes.activations, whole) << "no row of the data is longer than 64";
}

TEST(MemoryModelTest, LayerInputsLeaveForHostMemoryOrForAFile) {
  MemoryInput input = memory_example(2, 4);
  input.config.cpu_checkpointing = true;
  const MemoryClasses kept_all = memory_model(input).bytes;
  EXPECT_EQ(kept_all.host + kept_all.nvme, 0) << "without recompute no inputs are kept";
  input.recompute = true;
  const int64_t one = 2 * 64 * 256 * 2;  // two rows of 64 tokens, hidden 256, bf16
  MemoryInput stay = input;
  stay.config.cpu_checkpointing = false;
  const MemoryClasses here = memory_model(stay).bytes, file = memory_model(input).bytes;
  EXPECT_EQ(file.nvme, 4 * one);
  EXPECT_EQ(file.host, 2 * (one + 4096)) << "two of four layers', aligned";
  EXPECT_LE(file.activations, here.activations - 3 * one);
  input.accelerator = true;
  const MemoryClasses host = memory_model(input).bytes;
  EXPECT_EQ(host.nvme, 0);
  EXPECT_EQ(host.host, 4 * one);
  EXPECT_EQ(host.activations, file.activations + one) << "it comes back to be computed from";
}

TEST(MemoryModelTest, LongRowsTakeTheirMlpAndHeadInPieces) {
  MemoryInput input = memory_example(2, 4);
  input.recompute = true;
  input.tokens_per_row = 16384;
  MemoryInput whole = input;
  whole.pieces.piece = 2 * 16384;
  const int64_t cut = memory_model(input).bytes.activations;
  EXPECT_LT(cut, 0.75 * memory_model(whole).bytes.activations);
  input.recompute = false;
  whole.recompute = false;
  EXPECT_GT(memory_model(input).bytes.activations, 2 * cut) << "what is kept is kept whole";
}

TEST(MemoryModelTest, LayersThatDropTokensKeepLess) {
  MemoryInput input = memory_example(2, 4);
  const int64_t whole = memory_model(input).bytes.activations;
  dsconfig::RandomLtdConfig ltd{
      .layers = {1}, .min = 16, .max = 64, .require_steps = 10, .tokens_per_step = 16};
  input.config.total_steps = 1;
  input.config.data_efficiency.random_ltd = ltd;
  const int64_t one = memory_model(input).bytes.activations;
  ltd.layers = {0, 1};
  input.config.data_efficiency.random_ltd = ltd;
  const int64_t two = memory_model(input).bytes.activations;
  EXPECT_LT(one, whole);
  EXPECT_LT(two, one);
  input.config.total_steps = 11;
  EXPECT_GE(memory_model(input).bytes.activations, whole) << "at the end all tokens are kept";
}

TEST(MemoryModelTest, StatesAreThoseOfTheOptimizer) {
  MemoryInput input = memory_example(2, 4);
  const int64_t p = memory_model(input).parameters;
  for (const auto& [kind, states] :
       {std::pair{OptimizerKind::Sgd, 0}, std::pair{OptimizerKind::Lion, 1},
        std::pair{OptimizerKind::Lamb, 2}, std::pair{OptimizerKind::Rprop, 2}}) {
    input.config.optimizer.kind = kind;
    EXPECT_EQ(memory_model(input).bytes.optimizer, 4 * (1 + states) * p / 4);
  }
  input.config.optimizer = {.kind = OptimizerKind::RMSprop, .momentum = 0.9, .centered = true};
  EXPECT_EQ(memory_model(input).bytes.optimizer, 4 * (1 + 3) * p / 4);
}

/// By hand: in each of 4 layers two targets of 256 to 256, each with A [4, 256] and B [256, 4].
TEST(MemoryModelTest, LoraWritesItsAdaptersAlone) {
  for (const bool packed : {false, true}) {
    MemoryInput input = memory_example(2, 4);
    input.config.precision = dsconfig::Precision::Fp32;
    EXPECT_EQ(disk_use(input).model, 4 * memory_model(input).parameters);
    input.lora = LoraArgs{.r = 4, .target_modules = {"q_proj", "v_proj"}, .load_in_4bit = packed};
    const int64_t adapters = 4 * 2 * (4 * 256 + 256 * 4);
    EXPECT_EQ(disk_use(input).model, 4 * adapters);
    EXPECT_EQ(disk_use(input).checkpoint, 4 * adapters * 3) << "master and two moments";
    input.config.precision = dsconfig::Precision::Bf16;
    EXPECT_EQ(disk_use(input).model, 2 * adapters);
  }
}

TEST(MemoryModelTest, MomentsInEightBits) {
  for (const int stage : {0, 1, 2, 3}) {
    MemoryInput input = memory_example(stage, 4);
    const DiskUse whole = disk_use(input);
    input.config.optimizer.eight_bit = true;
    const auto units = layout::units_of(input.model, input.lora);
    const auto plan = plan_flats(units, input.config, 4);
    int64_t large = 0, others = 0, masters = 0, scales = 0;
    for (const auto& flat : plan.flats) {
      masters += flat.shard_numel();
      for (const auto& slot : flat.slots()) {
        (has_eight_bits(slot) ? large : others) += slot.numel;
        if (has_eight_bits(slot)) scales += (slot.numel + 255) / 256;
      }
    }
    const int64_t ranks = stage == 0 ? 1 : 4;
    const int64_t all = 2 * large + 8 * scales + 8 * others;
    const int64_t moments = memory_model(input).bytes.optimizer - 4 * masters;
    EXPECT_GE(moments, all / ranks) << stage;  // the rank with most has a little more
    EXPECT_LE(moments, all / ranks + 8 * others) << stage;
    EXPECT_GT(large, others) << "the example has matrices";
    EXPECT_EQ(disk_use(input).checkpoint, whole.checkpoint + 4 * 2 * scales);
  }
}

TEST(MemoryModelTest, MuonKeepsOneVectorOfItsMatrices) {
  for (const int stage : {0, 1, 2, 3}) {
    MemoryInput input = memory_example(stage, 4);
    input.config.optimizer.kind = OptimizerKind::Muon;
    const auto units = layout::units_of(input.model, input.lora);
    const auto plan = plan_flats(units, input.config, 4);
    int64_t matrices = 0, others = 0, shards = 0, large = 0, sent = 0;
    for (const auto& flat : plan.flats) {
      const bool orthogonalised = is_orthogonalised(flat, input.config);
      for (const auto& slot : flat.slots()) {
        EXPECT_EQ(is_orthogonalised(layout::Parameter{slot.name, slot.shape}), orthogonalised)
            << slot.name << ": flats are of one kind";
        (orthogonalised ? matrices : others) += slot.numel;
      }
      shards += flat.shard_numel() * 4 * (1 + (orthogonalised ? 1 : 2));
      if (!orthogonalised) continue;
      large = std::max(large, flat.numel());
      sent += 2 * 3 * flat.shard_numel();
    }
    ASSERT_GT(matrices, 0);
    ASSERT_GT(others, 0) << "embedding, head, norms and biases";
    const MemoryModel model = memory_model(input);
    EXPECT_EQ(model.bytes.optimizer, shards);
    EXPECT_EQ(disk_use(input).checkpoint, 4 * (2 * matrices + 3 * others));
    EXPECT_GE(model.bytes.buckets, 4 * large) << "a flat of matrices is whole for its update";
    EXPECT_EQ(model.wire.matrix_bytes, 4 * model.wire.matrix_elements);
    EXPECT_EQ(model.wire.matrix_elements, stage == 0 ? 0 : sent);
    input.world = 1;
    EXPECT_EQ(memory_model(input).wire.matrix_elements, 0);
  }
}

TEST(MemoryModelTest, OffloadMovesBytesAndKeepsTheirSum) {
  const MemoryModel plain = memory_model(memory_example(3, 4));
  const int64_t p = plain.parameters;
  MemoryInput input = memory_example(3, 4);
  input.config.offload.optimizer.device = OffloadDevice::Cpu;
  const MemoryModel host = memory_model(input);
  EXPECT_EQ(host.bytes.host, 12 * p / 4);
  EXPECT_EQ(host.bytes.optimizer, 0);
  EXPECT_EQ(host.bytes.host + host.bytes.optimizer, plain.bytes.optimizer);
  input.config.offload.param.device = OffloadDevice::Cpu;
  EXPECT_EQ(memory_model(input).bytes.host, 14 * p / 4);
  input.config.offload.optimizer.device = OffloadDevice::Nvme;
  input.config.offload.sub_group_size = 8192;
  const MemoryModel nvme = memory_model(input);
  EXPECT_GE(nvme.bytes.nvme, 12 * p / 4);
  EXPECT_LE(nvme.bytes.nvme, 12 * p / 4 + 12 * 4096 * 16) << "and the ends of tiles";
  EXPECT_LE(nvme.bytes.host, 2 * p / 4 + 4 * 8192 * 4 + 4096) << "the shards, and the buffers";
  input.config.offload.optimizer.device = OffloadDevice::None;
  input.config.offload.param.device = OffloadDevice::Nvme;
  input.config.offload.param.max_in_cpu = 0;
  input.config.offload.param.buffer_size = 4096;
  const MemoryModel param = memory_model(input);
  EXPECT_GE(param.bytes.nvme, 2 * p / 4);
  EXPECT_EQ(param.bytes.parameters, 2 * param.peak_live_parameters);
  EXPECT_LE(param.bytes.host, 5 * (2 * 4096 + 4096));
}

/// Elements of the largest flat.
int64_t largest_flat(const MemoryInput& input) {
  int64_t most = 0;
  for (const auto& flat :
       plan_flats(layout::units_of(input.model, input.lora), input.config, input.world).flats)
    most = std::max(most, flat.numel());
  return most;
}

TEST(MemoryModelTest, GradientsLeaveAnAcceleratorWithTheStates) {
  for (const auto& [stage, world] : {std::pair{2, 1}, {1, 4}, {2, 4}, {3, 4}}) {
    SCOPED_TRACE("stage " + std::to_string(stage) + ", ranks " + std::to_string(world));
    MemoryInput input = memory_example(stage, world);
    input.config.gradient_accumulation_steps = 2;
    input.accelerator = true;
    const MemoryModel here = memory_model(input);
    const int64_t p = here.parameters, flat = 2 * largest_flat(input);
    input.config.offload.optimizer.device = OffloadDevice::Cpu;
    const MemoryModel gone = memory_model(input);
    const int64_t block =
        update_copies(plan_flats(layout::units_of(input.model), input.config, world), input.config,
                      world)
            .host_block;
    EXPECT_EQ(block, flat / world) << "the largest shard, in 16 bits";
    EXPECT_EQ(gone.bytes.host, 14 * p / world + 2 * block) << "states, gradients, two blocks";
    EXPECT_EQ(gone.host.all(), gone.bytes.host);
    EXPECT_EQ(gone.host.gradients, 2 * p / world);
    EXPECT_EQ(gone.host.buffers, 2 * block);
    EXPECT_EQ(here.bytes.host, 0);
    if (stage == 1) {  // each rank's own sum is whole until the last micro-step
      EXPECT_LE(gone.bytes.gradients, 2 * p + flat / world);
    } else if (world == 1) {
      EXPECT_EQ(gone.bytes.gradients, 3 * flat) << "one leaves, one is computed, one comes back";
      EXPECT_EQ(here.bytes.gradients, 2 * p);
    } else {
      EXPECT_EQ(gone.bytes.gradients, flat + 2 * flat / world)
          << "one is reduced, one leaves, one comes back";
      EXPECT_GE(here.bytes.gradients, 2 * p / world + flat);
    }
    input.accelerator = false;
    EXPECT_EQ(memory_model(input).bytes.host, 12 * p / world) << "host memory is the device's";
    EXPECT_EQ(memory_model(input).bytes.gradients, here.bytes.gradients);
  }
}

/// What an update copies to the device: its share of the states needs its share of the gradient.
TEST(MemoryModelTest, TheShareOfTheStatesThatStaysGetsItsGradientBack) {
  MemoryInput input = memory_example(3, 4);
  input.accelerator = true;
  input.config.offload.optimizer.device = OffloadDevice::Cpu;
  const int64_t none = memory_model(input).bytes.buckets;
  input.config.offload.optimizer.ratio = 0.5;
  const auto plan = plan_flats(layout::units_of(input.model), input.config, 4);
  const UpdateCopies copies = update_copies(plan, input.config, 4);
  EXPECT_NEAR(double(copies.device) / double(2 * largest_flat(input) / 8), 1, 0.01);
  EXPECT_EQ(memory_model(input).bytes.buckets, std::max(none, copies.device));
}

/// 13 billion parameters on 24 GB, as ZeRO-Offload promises for a small GPU. At stage 2 the 16-bit
/// parameters alone are 26 GB.
TEST(MemoryModelTest, ThirteenBillionParametersFitOnASmallGpu) {
  MemoryInput input = memory_example(3, 1);
  input.model = {.model_type = "llama",
                 .vocab_size = 32000,
                 .hidden_size = 5120,
                 .intermediate_size = 13824,
                 .num_layers = 40,
                 .num_heads = 40,
                 .num_kv_heads = 40,
                 .head_dim = 128};
  input.config.zero.overlap_comm = true;
  input.config.gradient_accumulation_steps = 4;
  input.tokens_per_row = 1024;
  input.recompute = input.accelerator = true;
  input.config.offload.param.device = OffloadDevice::Cpu;
  constexpr int64_t kGpu = int64_t{24564} << 20;
  EXPECT_GT(memory_model(input).bytes.peak, 4 * kGpu);
  input.config.offload.optimizer.device = OffloadDevice::Cpu;
  const MemoryModel all = memory_model(input);
  EXPECT_GT(all.parameters, 13'000'000'000);
  EXPECT_LT(all.bytes.peak, kGpu - (int64_t{3} << 29)) << "1.5 GiB are CUDA's own";
  EXPECT_GE(all.bytes.host, 16 * all.parameters);
  EXPECT_LT(all.bytes.host, 17 * all.parameters);
  input.config.zero.stage = 2;
  input.config.offload.param.device = OffloadDevice::None;
  const MemoryModel states = memory_model(input);
  EXPECT_EQ(states.bytes.parameters, 2 * states.parameters);
  EXPECT_LT(states.bytes.peak, states.bytes.parameters + (int64_t{5} << 30)) << "a 32 GB GPU";
}

TEST(MemoryModelTest, OneRankShardsNothing) {
  for (int stage = 0; stage <= 3; ++stage) {
    const MemoryModel model = memory_model(memory_example(stage, 1, Precision::Fp32));
    EXPECT_EQ(model.stage, 0);
    EXPECT_EQ(model.wire.gradient_elements + model.wire.parameter_elements, 0);
    EXPECT_EQ(model.bytes.parameters, 4 * model.parameters);
    EXPECT_EQ(model.bytes.optimizer, 8 * model.parameters) << "the working copy is the master";
    EXPECT_EQ(model.bytes.gradients, 4 * model.parameters);
  }
}

TEST(MemoryModelTest, WireElementsPerStep) {
  const int64_t p = memory_model(memory_example(0, 2)).parameters;
  for (const int64_t accumulation : {1, 4}) {
    MemoryInput input = memory_example(0, 2);
    input.config.gradient_accumulation_steps = accumulation;
    EXPECT_EQ(memory_model(input).wire.gradient_elements, p) << "a ring all-reduce, once";
    input.config.zero.stage = 1;
    EXPECT_EQ(memory_model(input).wire.gradient_elements, p / 2) << "once";
    EXPECT_EQ(memory_model(input).wire.parameter_elements, p / 2) << "after the update";
    input.config.zero.stage = 2;
    EXPECT_EQ(memory_model(input).wire.gradient_elements, p / 2 * accumulation);
    input.config.zero.stage = 3;
    input.config.zero.max_live_parameters = input.config.zero.prefetch_bucket_size = 0;
    const MemoryModel stage3 = memory_model(input);
    EXPECT_EQ(stage3.wire.gradient_elements, p / 2 * accumulation);
    EXPECT_GE(stage3.wire.parameter_elements, p / 2 * accumulation);
    EXPECT_LE(stage3.wire.parameter_elements, 2 * (p / 2) * accumulation) << "two gathers at most";
    EXPECT_EQ(stage3.wire.parameter_bytes, 2 * stage3.wire.parameter_elements);
  }
}

TEST(MemoryModelTest, AOneBitOptimizerAddsItsErrorsAndSendsBits) {
  for (const int stage : {0, 1}) {
    MemoryInput input = memory_example(stage, 4);
    const MemoryModel plain = memory_model(input);
    const auto plain_disk = disk_use(input).checkpoint;
    input.config.optimizer.kind = OptimizerKind::OneBitAdam;
    const MemoryModel model = memory_model(input);
    const int64_t p = model.parameters;
    ASSERT_EQ(p % 128, 0) << "one vector that needs no padding";
    EXPECT_EQ(model.bytes.optimizer, plain.bytes.optimizer + 4 * p + 4 * p / 4);
    EXPECT_EQ(model.bytes.gradients, 2 * p) << "each rank's own, whole";
    EXPECT_EQ(model.wire.gradient_elements, plain.wire.gradient_elements) << "before the freeze";
    EXPECT_EQ(model.wire.momentum_elements, 2 * 3 * p / 4);
    EXPECT_EQ(model.wire.momentum_bytes, 2 * 3 * (8 + p / 4 / 8));
    EXPECT_EQ(disk_use(input).checkpoint, plain_disk + 4 * (4 * p + p));
    EXPECT_EQ(plain.wire.momentum_bytes, 0);
    input.world = 1;
    EXPECT_EQ(memory_model(input).wire.momentum_bytes, 0) << "one rank compresses nothing";
  }
}

/// Behind its freeze a rank of ZeroOneAdam has all states, whatever the stage. A run that ends before has not.
TEST(MemoryModelTest, ZeroOneAdamsMomentsAreWholeOnlyBehindItsFreeze) {
  MemoryInput input = memory_example(0, 4);
  input.config.optimizer.kind = OptimizerKind::ZeroOneAdam;
  input.config.optimizer.var_freeze_step = 100;
  const auto at = [&](int stage, int64_t steps) {
    input.config.zero.stage = stage;
    input.config.total_steps = steps;
    return memory_model(input);
  };
  const int64_t p = at(0, 0).parameters, errors = 4 * p + p, states = 12 * p;
  ASSERT_EQ(p % 128, 0) << "no padding";
  for (const int64_t steps : {0, 200}) {
    EXPECT_EQ(at(0, steps).bytes.optimizer, states + errors + 8 * p);
    EXPECT_EQ(at(1, steps).bytes.optimizer, at(0, steps).bytes.optimizer) << "as at stage 0";
    EXPECT_EQ(at(1, steps).wire.later_parameter_bytes, 0) << "each rank updates all";
  }
  // In 16 bits the count is one ahead: local steps begin at count 102, the 101st step.
  EXPECT_EQ(at(0, 100).bytes.optimizer, states + errors);
  EXPECT_EQ(at(1, 100).bytes.optimizer, states / 4 + errors);
  EXPECT_EQ(at(1, 101).bytes.optimizer, states + errors + 8 * p);
  EXPECT_EQ(at(1, 100).wire.later_parameter_bytes, at(1, 100).wire.parameter_bytes);
  EXPECT_GT(at(1, 100).wire.later_parameter_bytes, 0);
  EXPECT_LT(at(1, 100).bytes.peak, at(0, 100).bytes.peak);
  at(1, 100);
  const auto before = disk_use(input).checkpoint;
  at(1, 0);
  EXPECT_EQ(disk_use(input).checkpoint - before, 4 * 4 * 4 * p) << "of each rank";
}

TEST(MemoryModelTest, TheKnobsMoveWhatTheyShould) {
  MemoryInput input = memory_example(3, 2);
  const MemoryModel wide = memory_model(input);
  input.config.zero.max_live_parameters = 0;
  input.config.zero.prefetch_bucket_size = 0;
  const MemoryModel narrow = memory_model(input);
  EXPECT_LT(narrow.peak_live_parameters, wide.peak_live_parameters);
  EXPECT_GT(narrow.gathers, wide.gathers);
  EXPECT_LT(narrow.bytes.parameters, wide.bytes.parameters);

  MemoryInput activations = memory_example(2, 2);
  const int64_t kept = memory_model(activations).bytes.activations;
  activations.recompute = true;
  EXPECT_LT(memory_model(activations).bytes.activations, kept);

  MemoryInput fp32 = memory_example(2, 2);
  fp32.config.grad_accum_dtype = Precision::Fp32;
  EXPECT_GT(memory_model(fp32).bytes.gradients, memory_model(memory_example(2, 2)).bytes.gradients);
}

TEST(MemoryModelTest, OptimizersKeepWhatTheyKeep) {
  MemoryInput input = memory_example(0, 1, Precision::Fp32);
  const int64_t p = memory_model(input).parameters;
  for (const auto& [kind, momentum, states] :
       {std::tuple{OptimizerKind::Sgd, 0.0, 0}, std::tuple{OptimizerKind::Sgd, 0.9, 1},
        std::tuple{OptimizerKind::Lion, 0.0, 1}, std::tuple{OptimizerKind::Lamb, 0.0, 2}}) {
    input.config.optimizer.kind = kind;
    input.config.optimizer.momentum = momentum;
    EXPECT_EQ(memory_model(input).bytes.optimizer, 4 * p * states);
    EXPECT_EQ(disk_use(input).checkpoint, 4 * p * (1 + states));
  }
}

TEST(MemoryModelTest, AllAtOnceIsAtMostTheSumAndAtLeastTheLargest) {
  for (int stage = 0; stage <= 3; ++stage) {
    const MemoryClasses bytes = memory_model(memory_example(stage, 2)).bytes;
    const int64_t sum =
        bytes.parameters + bytes.gradients + bytes.optimizer + bytes.buckets + bytes.activations;
    EXPECT_LE(bytes.peak, sum);
    EXPECT_GE(bytes.peak, bytes.optimizer + bytes.activations);
  }
}

TEST(MemoryModelTest, SixteenBitsNeedBuckets) {
  EXPECT_EQ(memory_model(memory_example(0, 1, Precision::Fp32)).bytes.buckets, 0);
  MemoryInput input = memory_example(0, 1);
  EXPECT_EQ(memory_model(input).bytes.buckets, (2 + 2 * 4) * 1024 * 256)
      << "what rounding takes from the head's gradient; a tile twice in fp32";
  input.tokens_per_row = 1100;
  EXPECT_EQ(memory_model(input).bytes.buckets, (2 + 2 + 2 * 4) * 1024 * 256)
      << "libtorch's product of more rows rounds to a tile in bf16";
  input.tokens_per_row = 64;
  input.model.vocab_size = 64 * 1024;
  input.native_products = false;
  const int64_t weight = input.model.vocab_size * 256;
  EXPECT_EQ(memory_model(input).bytes.buckets, 2 * weight + 2 * 4 * 1024 * 256)
      << "no product is rounded in between, and no weight is whole in fp32";
}

TEST(MemoryModelTest, DeepSpeedsOwnEstimate) {
  MemoryInput input = memory_example(2, 4);
  const int64_t p = memory_model(input).parameters;
  EXPECT_EQ(deepspeed_estimate(input).model_states, 4 * p + 16 * p / 4);
  EXPECT_EQ(deepspeed_estimate(input).overlap_buckets, 0);
  input.config.zero.overlap_comm = true;  // Hugging Face's example: 5e8 twice make 9e9
  EXPECT_EQ(deepspeed_estimate(input).overlap_buckets, 9'000'000'000);
  input.config.zero.stage = 3;
  EXPECT_EQ(deepspeed_estimate(input).model_states, 18 * p / 4 + 4 * 1024 * 256);
}

TEST(MemoryModelTest, ActivationsFollowTheTokensOfAMicroBatch) {
  const auto activations = [](const MemoryInput& input) {
    return memory_model(input).bytes.activations;
  };
  MemoryInput input = memory_example(2, 2);
  const int64_t longest = activations(input);
  input.micro_batches[2] = {128, 126};  // what two rows of the longest length are
  EXPECT_EQ(activations(input), longest);
  input.micro_batches[2] = {64, 62};
  const int64_t half = activations(input);
  EXPECT_NEAR(static_cast<double>(half) / static_cast<double>(longest), 0.5, 0.1);
  input.micro_batches[2] = {64, 61};
  EXPECT_LE(activations(input), half);
  input.micro_batches[2] = {64, 8};
  EXPECT_LT(activations(input), half) << "the last layer and the head have 8 rows";
  input.config.micro_batch_size = 3;
  EXPECT_GT(activations(input), longest) << "of three rows nothing is known";
}

TEST(MemoryModelTest, EveryCombinationEndsWithSaneCounts) {
  for (int stage = 0; stage <= 3; ++stage)
    for (const int world : {1, 2, 3, 4})
      for (const Precision precision : {Precision::Fp32, Precision::Bf16})
        for (const Precision accumulate : {Precision::Fp32, precision})
          for (const int64_t accumulation : {1, 3})
            for (const bool overlap : {false, true})
              for (const bool tied : {false, true}) {
                MemoryInput input = memory_example(stage, world, precision);
                input.model.tied = tied;
                input.config.grad_accum_dtype = accumulate;
                input.config.gradient_accumulation_steps = accumulation;
                input.config.zero.overlap_comm = overlap;
                input.config.zero.param_persistence_threshold = 1000;
                const MemoryModel model = memory_model(input);
                EXPECT_GT(model.bytes.parameters, 0);
                EXPECT_GT(model.bytes.gradients, 0);
                EXPECT_GE(model.bytes.buckets, 0);
                EXPECT_GE(model.bytes.optimizer * model.stage, 0);
                EXPECT_LT(model.bytes.peak, 100 * model.parameters + (64 << 20) * 4);
              }
}

}  // namespace
}  // namespace dsj::plan
