// What each key of the section `aio` does.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "engine/aio/memory_raw.h"
#include "engine/aio/open.h"
#include "tests/support/soon.h"

namespace dsj::aio {
namespace {

constexpr int64_t kLargeSize = 512 * kAlign;

struct Memory {
  Memory() : data(static_cast<std::byte*>(std::aligned_alloc(kAlign, kLargeSize)), &std::free) {
    std::fill_n(data.get(), kLargeSize, std::byte{1});
  }
  std::span<std::byte> span() { return {data.get(), static_cast<size_t>(kLargeSize)}; }
  std::unique_ptr<std::byte, void (*)(void*)> data;
};

TEST(AioKeys, BlockSizeIsTheLargestCall) {
  for (const int64_t block : {kAlign, 8 * kAlign}) {
    std::atomic<int64_t> largest{0}, calls{0};
    ThreadedFile file(
        raw_memory(kLargeSize,
                   [&](const RawCall& call) -> std::optional<int64_t> {
                     ++calls;
                     for (int64_t seen = largest;
                          seen < call.bytes && !largest.compare_exchange_weak(seen, call.bytes);) {
                     }
                     return std::nullopt;
                   }),
        "file", kLargeSize, {.block_size = block}, "memory");
    Memory memory;
    ASSERT_TRUE(file.wait(file.write(0, memory.span())));
    EXPECT_EQ(largest, block);
    EXPECT_EQ(calls, kLargeSize / block);
  }
}

TEST(AioKeys, QueueDepthTimesThreadsAreUnderWay) {
  for (const Options& options :
       {Options{.block_size = kAlign, .queue_depth = 4},
        Options{.block_size = kAlign, .queue_depth = 2, .thread_count = 3}}) {
    const int wanted = options.queue_depth * options.thread_count;
    std::atomic<int> now{0}, most{0};
    ThreadedFile file(
        raw_memory(kLargeSize,
                   [&](const RawCall&) -> std::optional<int64_t> {
                     const int under_way = ++now;
                     for (int seen = most;
                          seen < under_way && !most.compare_exchange_weak(seen, under_way);) {
                     }
                     EXPECT_TRUE(soon([&] { return most >= wanted; }));
                     --now;
                     return std::nullopt;
                   }),
        "file", kLargeSize, options, "memory");
    Memory memory;
    ASSERT_TRUE(file.wait(file.write(0, memory.span())));
    EXPECT_EQ(most, wanted);
  }
}

/// Writes and reads kLargeSize bytes by io_uring; what the file counted. Skips where there is none.
class Uring {
 public:
  explicit Uring(const Options& options) {
    const std::string path = testing::TempDir() + "dsj_aio_keys";
    std::filesystem::remove(path);
    auto created = create_block_file(path, kLargeSize, options, "io_uring");
    if (!created) {
      why = created.error().to_string();
      return;
    }
    const Counters before = created->file->counters();
    Memory memory;
    EXPECT_TRUE(created->file->wait(created->file->write(0, memory.span())));
    EXPECT_TRUE(created->file->wait(created->file->read(0, memory.span())));
    const Counters after = created->file->counters();
    counters = {after.blocks - before.blocks, after.submissions - before.submissions,
                after.mixed - before.mixed};
    std::filesystem::remove(path);
  }
  std::string why;
  Counters counters;
};

TEST(AioKeys, SubmissionsFollowSingleSubmit) {
  const Uring batches({.block_size = kAlign, .queue_depth = 64});
  if (!batches.why.empty()) GTEST_SKIP() << "no io_uring here: " << batches.why;
  const Uring single({.block_size = kAlign, .queue_depth = 64, .single_submit = true});
  EXPECT_EQ(batches.counters.blocks, 2 * kLargeSize / kAlign);
  EXPECT_GE(single.counters.submissions, single.counters.blocks);
  EXPECT_LT(batches.counters.submissions, batches.counters.blocks);
}

TEST(AioKeys, WithoutOverlapEventsBatchesDoNotMix) {
  const Uring mixed({.block_size = kAlign, .queue_depth = 8});
  if (!mixed.why.empty()) GTEST_SKIP() << "no io_uring here: " << mixed.why;
  const Uring apart({.block_size = kAlign, .queue_depth = 8, .overlap_events = false});
  EXPECT_EQ(apart.counters.mixed, 0);
  EXPECT_GT(mixed.counters.mixed, 0);
}

}  // namespace
}  // namespace dsj::aio
