// Every machine and every wish: a GPU, the CPU with its reason, or a refusal. Never the CPU in
// silence where a GPU was asked for.
#include "engine/cuda/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dsj::cuda {
namespace {

using testing::HasSubstr;

const Found kNone{.lacking = "no CUDA driver (libcuda.so.1) is here"};
const Found kTwo{.devices = 2};
const Found kWithoutPlugin{
    .devices = 2, .plugin_problem = "it is not there", .plugin_there = false};
const Found kBrokenPlugin{.devices = 1, .plugin_problem = "it cannot be loaded"};

TEST(Choice, WordsOfTheJob) {
  EXPECT_EQ(wanted_of({}), Wanted::Any);
  EXPECT_EQ(wanted_of("auto"), Wanted::Any);
  EXPECT_EQ(wanted_of("cpu"), Wanted::Cpu);
  EXPECT_EQ(wanted_of("cuda"), Wanted::Cuda);
}

TEST(Choice, AGpuOfItsOwnPerLocalRank) {
  for (const Wanted wanted : {Wanted::Any, Wanted::Cuda}) {
    for (const int rank : {0, 1}) {
      const auto choice = choose(wanted, kTwo, rank);
      ASSERT_TRUE(choice) << choice.error().to_string();
      EXPECT_EQ(choice->gpu, rank);
      EXPECT_EQ(choice->because, "2 GPUs here");
    }
    const auto third = choose(wanted, kTwo, 2);
    ASSERT_FALSE(third);
    EXPECT_EQ(third.error().kind, ErrorKind::Environment);
    EXPECT_EQ(third.error().message, "local rank 2 has no GPU of its own: this machine has 2 GPUs");
    EXPECT_THAT(third.error().hint, HasSubstr("--nproc_per_node) to 2"));
  }
}

/// Else the first kernel would say that there is no image of it for this device.
TEST(Choice, AGpuThatIsTooOldForTheKernelsIsNoGpu) {
  const Found mixed{.devices = 2, .capabilities = {75, 80}};
  EXPECT_EQ(choose(Wanted::Cuda, mixed, 1)->gpu, 1);
  const auto refused = choose(Wanted::Cuda, mixed, 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::Environment);
  EXPECT_EQ(
      refused.error().message,
      "this machine has 2 GPUs, and number 0 has compute capability 7.5: the kernels need 8.0 or "
      "more");
  const auto loss = choose(Wanted::Any, mixed, 0);
  ASSERT_TRUE(loss);
  EXPECT_FALSE(loss->gpu);
  EXPECT_TRUE(loss->is_a_loss);
  for (const std::vector<int>& unknown : {std::vector<int>{}, std::vector<int>{0}})
    EXPECT_EQ(choose(Wanted::Any, {.devices = 1, .capabilities = unknown}, 0)->gpu, 0);
}

TEST(Choice, TheCpuSaysWhy) {
  for (const Found& found : {kNone, kTwo, kWithoutPlugin, kBrokenPlugin}) {
    const auto asked = choose(Wanted::Cpu, found, 0);
    ASSERT_TRUE(asked);
    EXPECT_FALSE(asked->gpu);
    EXPECT_EQ(asked->because, "training.device is cpu");
  }
  const auto nothing = choose(Wanted::Any, kNone, 0);
  ASSERT_TRUE(nothing);
  EXPECT_FALSE(nothing->gpu);
  EXPECT_FALSE(nothing->is_a_loss);
  EXPECT_EQ(nothing->because, kNone.lacking);
  const auto loss = choose(Wanted::Any, kWithoutPlugin, 0);
  ASSERT_TRUE(loss);
  EXPECT_FALSE(loss->gpu);
  EXPECT_TRUE(loss->is_a_loss) << "GPUs lie idle: a warning";
  EXPECT_EQ(loss->because, "2 GPUs, but it is not there");
}

TEST(Choice, WhoAsksForAGpuAndGetsNoneIsRefused) {
  for (const Found& found : {kNone, kWithoutPlugin, kBrokenPlugin}) {
    const auto choice = choose(Wanted::Cuda, found, 0);
    ASSERT_FALSE(choice);
    EXPECT_EQ(choice.error().kind, ErrorKind::Environment) << "no attempt will help here";
    EXPECT_EQ(choice.error().where, "training.device");
    EXPECT_THAT(choice.error().hint, HasSubstr("set training.device to cpu"));
  }
  EXPECT_EQ(choose(Wanted::Cuda, kNone, 0).error().message,
            "the job asks for GPUs, and no CUDA driver (libcuda.so.1) is here");
  const auto broken = choose(Wanted::Any, kBrokenPlugin, 0);
  ASSERT_FALSE(broken) << "a GPU half that is there and broken is mended, not passed over";
  EXPECT_EQ(broken.error().message, "this machine has 1 GPU, but it cannot be loaded");
}

}  // namespace
}  // namespace dsj::cuda
