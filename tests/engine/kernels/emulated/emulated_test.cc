// The emulated block finds every planted fault, and nothing where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "tests/engine/kernels/emulated/block.h"
#include "tests/engine/kernels/emulated/planted.h"
#include "tests/engine/kernels/emulated/watch.h"

namespace dsj::emulated {
namespace {

using planted::Plant;
using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;

constexpr int kThreads = 128;
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kWatched = false;  // AddressSanitizer's callbacks are there instead
#else
constexpr bool kWatched = true;
#endif

/// What is found; "": nothing, and the sums are right.
std::string found(Plant plant, Options options = {}) {
  const Buffer in(kThreads * sizeof(float)), out(kThreads * sizeof(float));
  auto* values = static_cast<float*>(in.data());
  std::iota(values, values + kThreads, 1.0f);
  set_options(options);
  try {
    planted::block_sum(plant, values, static_cast<float*>(out.data()), kThreads);
  } catch (const Fault& fault) {
    set_options({});
    return fault.what();
  }
  set_options({});
  for (int i = 0; i < kThreads; ++i)
    if (static_cast<float*>(out.data())[i] != kThreads * (kThreads + 1) / 2) return "a wrong sum";
  return "";
}

TEST(Emulated, RunsWhatIsRightInAnyOrderOfThreads) {
  EXPECT_EQ(found(Plant::None), "");
  for (uint64_t seed = 1; seed <= 50; ++seed)
    EXPECT_EQ(found(Plant::None, {.drawn = true, .seed = seed}), "") << seed;
}

TEST(Emulated, FindsDivergentBarriers) {
  EXPECT_THAT(found(Plant::DivergentBarrier),
              MatchesRegex("block 0: divergent barrier: thread 32 waits at .*planted.cu"
                           ":[0-9]+, thread 0 waits at .*planted.cu:[0-9]+"));
  EXPECT_THAT(found(Plant::EndsBeforeBarrier),
              MatchesRegex("block 0: divergent barrier: thread 32 has ended, thread 0 waits at "
                           ".*planted.cu:[0-9]+"));
}

TEST(Emulated, FindsWrongMasksOfWarpOperations) {
  EXPECT_THAT(found(Plant::MaskWithoutCaller), HasSubstr("its mask does not name its caller"));
  EXPECT_THAT(found(Plant::MaskOfMissingLane), HasSubstr("lane 31 of its mask does not run"));
  EXPECT_THAT(found(Plant::ShuffleOutsideMask),
              HasSubstr("thread 0 reads lane 16, which is not in its mask"));
}

TEST(Emulated, FindsRacesBetweenBarriers) {
  if (!kWatched) GTEST_SKIP() << "the memory watch is not in this build";
  EXPECT_THAT(found(Plant::NoBarrier), AllOf(HasSubstr("block 0: "), HasSubstr("thread")));
  EXPECT_THAT(found(Plant::NoWarpBarrier), HasSubstr("a race: thread 1 writes what thread 0 read"));
  const Buffer out(sizeof(float));
  try {
    planted::two_blocks(static_cast<float*>(out.data()));
    ADD_FAILURE() << "two blocks write one word";
  } catch (const Fault& fault) {
    EXPECT_STREQ(fault.what(), "block 1: a race: thread 0 writes what thread 0 wrote");
  }
}

TEST(Emulated, FindsWhatIsOutsideOrUnwritten) {
  if (!kWatched) GTEST_SKIP() << "the memory watch is not in this build";
  EXPECT_EQ(found(Plant::UnwrittenShared),
            "block 0: thread 4 reads shared memory that no thread has written");
  EXPECT_EQ(found(Plant::GlobalOutside),
            "block 0: thread 127 reads 4 bytes outside of every buffer");
  EXPECT_EQ(found(Plant::SharedOutside),
            "block 0: thread 0 writes 4 bytes outside of every buffer");
}

TEST(Emulated, AFaultLeavesItReadyForTheNextLaunch) {
  EXPECT_NE(found(Plant::EndsBeforeBarrier), "");
  EXPECT_EQ(found(Plant::None), "");
}

TEST(Emulated, RefusesWhatADeviceRefuses) {
  float in = 0, out = 0;
  EXPECT_THROW(planted::block_sum(Plant::None, &in, &out, 1056), Fault);
}

}  // namespace
}  // namespace dsj::emulated
