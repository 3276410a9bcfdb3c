// Blocks that do not overlap, whose pages serve blocks of other sizes, and a limit of what is kept.
#include "engine/memory/page_heap.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <random>
#include <thread>
#include <vector>

namespace dsj::memory {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(PageHeap, AStepOfOtherSizesFindsItsPagesAgain) {
  PageHeap heap(64 * kMiB);
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  const auto step = [&](size_t size) {
    std::vector<void*> blocks;
    for (size_t i = 0; i < 24 * kMiB / size; ++i) {
      blocks.push_back(heap.take(size));
      std::memset(blocks.back(), 1, size);
    }
    for (void* block : blocks) heap.give(block, size);
  };
  step(kMiB);
  const auto before = faults();
  for (size_t size = kMiB; size < 4 * kMiB; size += 200'000) step(size);
  EXPECT_LT(faults() - before, 200) << "24 MiB have 6,144 pages";
}

TEST(PageHeap, NeighboursJoinInWhateverOrderTheyAreFreed) {
  for (const auto& order : std::vector<std::vector<int>>{{0, 1, 2}, {2, 1, 0}, {0, 2, 1}}) {
    PageHeap heap(64 * kMiB);
    std::vector<char*> blocks;
    for (int i = 0; i < 3; ++i) blocks.push_back(static_cast<char*>(heap.take(2 * kMiB)));
    EXPECT_EQ(blocks[1], blocks[0] + 2 * kMiB);
    EXPECT_EQ(blocks[2], blocks[1] + 2 * kMiB);
    for (const int i : order) heap.give(blocks[i], 2 * kMiB);
    EXPECT_EQ(heap.kept(), 6 * kMiB);
    EXPECT_EQ(heap.take(6 * kMiB), blocks[0]);
    EXPECT_EQ(heap.kept(), 0u);
  }
}

TEST(PageHeap, TheLowestFreeAddressComesFirst) {
  PageHeap heap(64 * kMiB);
  void* const first = heap.take(3 * kMiB);
  void* const second = heap.take(kMiB);
  heap.give(first, 3 * kMiB);
  EXPECT_EQ(heap.take(kMiB), first);
  EXPECT_EQ(heap.take(2 * kMiB), static_cast<char*>(first) + kMiB);
  EXPECT_GT(heap.take(kMiB), second);
}

TEST(PageHeap, GivesBackWhatIsBeyondItsLimit) {
  PageHeap heap(4 * kMiB);
  char* const block = static_cast<char*>(heap.take(10 * kMiB));
  std::memset(block, 7, 10 * kMiB);
  heap.give(block, 10 * kMiB);
  EXPECT_EQ(heap.kept(), 4 * kMiB);
  ASSERT_EQ(heap.take(10 * kMiB), block);
  EXPECT_EQ(block[4 * kMiB - 1], 7) << "kept";
  EXPECT_EQ(block[4 * kMiB], 0) << "a fresh page";
  heap.give(block, 10 * kMiB);
  heap.set_limit(0);
  EXPECT_EQ(heap.kept(), 0u);
  ASSERT_EQ(heap.take(kMiB), block);
  EXPECT_EQ(block[0], 0);
}

TEST(PageHeap, ABlockIsAlignedAndMayHaveAnySize) {
  PageHeap heap(64 * kMiB);
  for (const size_t size : {kMiB + 1, PageHeap::kGrain, size_t{1}, size_t{1500} * kMiB}) {
    char* const block = static_cast<char*>(heap.take(size));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % PageHeap::kGrain, 0u);
    block[0] = block[size - 1] = 1;
    heap.give(block, size);
  }
}

TEST(PageHeap, WithoutAddressSpaceThereIsNoBlock) {
  PageHeap heap(64 * kMiB);
  EXPECT_THROW(heap.take(size_t{1} << 60), std::bad_alloc);
  EXPECT_NE(heap.take(kMiB), nullptr) << "it goes on";
}

/// Each block is filled with a number of its own, which must be there when it is freed.
void live(PageHeap& heap, unsigned seed, size_t limit) {
  struct Held {
    uint64_t* words;
    size_t size;
    uint64_t number;
  };
  std::mt19937_64 random(seed);
  std::vector<Held> held;
  const auto check_and_free = [&](size_t i) {
    const Held& block = held[i];
    for (size_t at = 0; at < block.size / 8; at += 509) ASSERT_EQ(block.words[at], block.number);
    heap.give(block.words, block.size);
    held[i] = held.back();
    held.pop_back();
  };
  for (int turn = 0; turn < 2000; ++turn) {
    if (held.size() > 12 || (!held.empty() && random() % 2 == 0)) {
      ASSERT_NO_FATAL_FAILURE(check_and_free(random() % held.size()));
    } else {
      const size_t size = 8 * (1 + random() % (kMiB / 2));
      held.push_back({static_cast<uint64_t*>(heap.take(size)), size, random()});
      for (size_t at = 0; at < size / 8; at += 509) held.back().words[at] = held.back().number;
    }
    ASSERT_LE(heap.kept(), limit);
  }
  while (!held.empty()) ASSERT_NO_FATAL_FAILURE(check_and_free(0));
}

TEST(PageHeap, BlocksNeverOverlap) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    PageHeap heap(8 * kMiB);
    ASSERT_NO_FATAL_FAILURE(live(heap, seed, 8 * kMiB)) << "seed " << seed;
  }
}

TEST(PageHeap, ServesThreads) {
  PageHeap heap(8 * kMiB);
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed)
    threads.emplace_back([&heap, seed] { live(heap, seed, 8 * kMiB); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace dsj::memory
