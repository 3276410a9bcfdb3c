#include "job/plan/fit.h"

#include <gtest/gtest.h>

#include "tests/job/plan/example.h"

namespace dsj::plan {
namespace {

FitInput fit_example(int stage, int world, int64_t micro = 4) {
  FitInput input;
  input.memory.model = example_model();
  input.memory.config.micro_batch_size = micro;
  input.memory.config.gradient_accumulation_steps = 1;
  input.memory.config.zero.stage = stage;
  input.memory.world = world;
  input.memory.tokens_per_row = 2048;
  input.ranks_per_host = world;
  return input;
}

int64_t peak(const FitInput& input) {
  return memory_model(input.memory).bytes.peak;
}

TEST(FitTest, WhatIsNotKnownRefusesNothing) {
  EXPECT_TRUE(check_fit(fit_example(0, 2), {}).empty());
}

TEST(FitTest, TheBoundIsTheByte) {
  const FitInput input = fit_example(1, 2);
  Limits limits;
  limits.host = {2 * peak(input), "the host"};
  EXPECT_TRUE(check_fit(input, limits).empty());
  limits.host.bytes = *limits.host.bytes - 1;
  const auto misfits = check_fit(input, limits);
  ASSERT_EQ(misfits.size(), 1u);
  EXPECT_NE(misfits[0].what.find("2 ranks need"), std::string::npos) << misfits[0].what;
  EXPECT_NE(misfits[0].what.find("the host is "), std::string::npos) << misfits[0].what;
}

TEST(FitTest, AOneBitOptimizerIsNotSentAboveItsStage) {
  for (const auto& [kind, highest] : {std::pair{dsconfig::OptimizerKind::OneBitAdam, 1},
                                      std::pair{dsconfig::OptimizerKind::OneBitLamb, 1},
                                      std::pair{dsconfig::OptimizerKind::ZeroOneAdam, 1}}) {
    FitInput input = fit_example(0, 2), wide = input;
    input.memory.config.optimizer.kind = wide.memory.config.optimizer.kind = kind;
    wide.memory.config.zero.stage = highest;
    wide.memory.recompute = true;
    for (const int64_t bytes : {int64_t{1}, 2 * peak(wide)}) {
      Limits limits;
      limits.host = {bytes, "the host"};
      const std::string remedy = check_fit(input, limits)[0].remedy;
      for (int stage = highest + 1; stage <= 3; ++stage)
        EXPECT_EQ(remedy.find("stage " + std::to_string(stage)), std::string::npos) << remedy;
    }
  }
}

TEST(FitTest, SparseGradientsAreNotSentToStageThree) {
  FitInput input = fit_example(0, 2);
  input.memory.config.sparse_gradients = true;
  Limits limits;
  limits.host = {1, "the host"};
  EXPECT_EQ(check_fit(input, limits)[0].remedy.find("stage 3"), std::string::npos);
}

/// The remedy is computed: applying it makes the run fit, and no change before it does.
TEST(FitTest, TheRemedyIsTheFirstThatFits) {
  const FitInput input = fit_example(0, 2);
  FitInput stage1 = input, recompute = input, all = input;
  stage1.memory.config.zero.stage = 1;
  Limits limits;
  limits.host = {2 * peak(stage1), "the host"};
  EXPECT_EQ(check_fit(input, limits)[0].remedy.find("zero_optimization.stage 1 makes it fit"), 0u)
      << check_fit(input, limits)[0].remedy;

  FitInput at3 = fit_example(3, 2);
  recompute = all = at3;
  recompute.memory.recompute = true;
  limits.host = {2 * peak(recompute), "the host"};
  EXPECT_EQ(check_fit(at3, limits)[0].remedy.find("gradientCheckpointing true makes it fit"), 0u)
      << check_fit(at3, limits)[0].remedy;

  all.memory.recompute = true;
  all.memory.config.micro_batch_size = 1;
  all.memory.config.gradient_accumulation_steps = 4;
  limits.host = {2 * peak(all), "the host"};
  EXPECT_EQ(check_fit(at3, limits)[0].remedy.find(
                "gradientCheckpointing true, train_micro_batch_size_per_gpu 1 with "
                "gradient_accumulation_steps 4 makes it fit"),
            0u)
      << check_fit(at3, limits)[0].remedy;

  limits.host.bytes = *limits.host.bytes * 8 / 10;
  EXPECT_NE(check_fit(at3, limits)[0].remedy.find("spec.workers.replicas"), std::string::npos)
      << check_fit(at3, limits)[0].remedy;
  limits.host.bytes = 1000;
  EXPECT_EQ(check_fit(at3, limits)[0].remedy.find("no stage, recompute"), 0u);
}

TEST(FitTest, ADeviceIsOneRanks) {
  const FitInput input = fit_example(0, 2);
  Limits limits;
  limits.device = {peak(input), "--device-memory"};
  limits.host = {1000, "the host"};
  EXPECT_TRUE(check_fit(input, limits).empty()) << "nothing is offloaded to the host";
  limits.device.bytes = peak(input) - 1;
  const auto misfits = check_fit(input, limits);
  ASSERT_EQ(misfits.size(), 1u);
  EXPECT_EQ(misfits[0].what.find("1 rank needs"), 0u) << misfits[0].what;
}

/// A job on a GPU whose memory nobody named: the host has to hold what is offloaded to it, and no more.
TEST(FitTest, AJobOnADeviceDoesNotFillTheHost) {
  FitInput input = fit_example(2, 1);
  const Limits limits{.host = {peak(input) - 1, "the host"}};
  EXPECT_EQ(check_fit(input, limits).size(), 1u);
  input.memory.accelerator = true;
  EXPECT_TRUE(check_fit(input, limits).empty());
  input.memory.config.offload.optimizer.device = dsconfig::OffloadDevice::Cpu;
  EXPECT_EQ(check_fit(input, {.host = {1000, "the host"}}).size(), 1u);
}

TEST(FitTest, TheDiskHoldsCheckpointsAndTheModel) {
  FitInput input = fit_example(0, 2);
  input.new_checkpoints = 5;
  const DiskUse use = disk_use(input.memory);
  EXPECT_EQ(use.checkpoint, 12 * memory_model(input.memory).parameters);
  Limits limits;
  limits.output_disk = {5 * use.checkpoint + use.model, "/out"};
  EXPECT_TRUE(check_fit(input, limits).empty());
  limits.output_disk.bytes = *limits.output_disk.bytes - 1;
  ASSERT_EQ(check_fit(input, limits).size(), 1u);
  EXPECT_EQ(check_fit(input, limits)[0].remedy.find("saveTotalLimit 1 makes it fit"), 0u);
  limits.output_disk.bytes = 10;
  EXPECT_EQ(check_fit(input, limits)[0].remedy.find("another outputDir"), 0u);
}

TEST(FitTest, ADiskHoldsWhatIsSwappedToIt) {
  FitInput input = fit_example(3, 2);
  input.ranks_per_host = 2;
  input.memory.config.offload.optimizer = {.device = dsconfig::OffloadDevice::Nvme,
                                           .nvme_path = "/a"};
  input.memory.config.offload.param = {
      .device = dsconfig::OffloadDevice::Nvme, .nvme_path = "/b", .max_in_cpu = 0};
  const MemoryModel model = memory_model(input.memory);
  const int64_t all = model.bytes.nvme * 2, parameters = model.parameter_file * 2;
  ASSERT_GT(parameters, 0);
  ASSERT_GT(all, parameters);
  Limits one;
  one.nvme_disk = {all, "/a"};
  EXPECT_TRUE(check_fit(input, one).empty());
  one.nvme_disk.bytes = all - 1;
  ASSERT_EQ(check_fit(input, one).size(), 1u);
  EXPECT_EQ(check_fit(input, one)[0].what.find("offload needs"), 0u);
  Limits two;
  two.nvme_disk = {all - parameters, "/a"};
  two.nvme_parameter_disk = {parameters, "/b"};
  EXPECT_TRUE(check_fit(input, two).empty());
  two.nvme_parameter_disk.bytes = parameters - 1;
  ASSERT_EQ(check_fit(input, two).size(), 1u);
  EXPECT_EQ(check_fit(input, two)[0].what.find("offload_param needs"), 0u);
}

TEST(FitTest, BytesAsPeopleReadThem) {
  EXPECT_EQ(show_bytes(1610612736), "1.5 GiB");
  EXPECT_EQ(show_bytes(5), "5 B");
}

}  // namespace
}  // namespace dsj::plan
