#include "engine/memory/counting_allocator.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace dsj::memory {
namespace {

TEST(CountingAllocator, BytesGoToTheScopesClassAndComeBack) {
  install();
  Ledger ledger;
  {
    MemoryScope scope(Class::Gradients, ledger);
    at::Tensor a = at::empty({1000}, at::kFloat);
    EXPECT_EQ(ledger.live(Class::Gradients), 4000);
    {
      MemoryScope inner(Class::Buckets);
      at::Tensor b = at::empty({10}, at::kHalf);
      EXPECT_EQ(ledger.live(Class::Buckets), 20);
      EXPECT_EQ(ledger.live(), 4020);
    }
    EXPECT_EQ(ledger.live(Class::Buckets), 0);
    at::Tensor view = a.narrow(0, 0, 10);
    a.reset();
    EXPECT_EQ(ledger.live(Class::Gradients), 4000) << "a view keeps the storage";
    view.reset();
  }
  EXPECT_EQ(ledger.live(), 0);
  EXPECT_EQ(ledger.peak(), 4020);
}

TEST(CountingAllocator, FreedOnAnotherThreadGoesBackToItsLedger) {
  install();
  Ledger ledger;
  at::Tensor tensor;
  {
    MemoryScope scope(Class::Parameters, ledger);
    tensor = at::empty({100});
  }
  std::thread([moved = std::move(tensor)]() mutable { moved.reset(); }).join();
  EXPECT_EQ(ledger.live(), 0);
}

TEST(CountingAllocator, FreedByItsBarePointer) {
  install();
  Ledger ledger;
  MemoryScope scope(Class::Buckets, ledger);
  void* data = c10::GetCPUAllocator()->raw_allocate(100);
  EXPECT_EQ(ledger.live(Class::Buckets), 100);
  c10::GetCPUAllocator()->raw_deallocate(data);
  EXPECT_EQ(ledger.live(), 0);
}

/// Libraries ask malloc() for such blocks in every product.
TEST(CountingAllocator, PagesOfFreedHeapBlocksAreNotClearedAgain) {
  install();
  constexpr size_t kBytes = 1'000'000;
  const auto faults = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
  };
  const auto use = [] {
    std::vector<void*> blocks;
    for (int i = 0; i < 4; ++i) {
      blocks.push_back(std::malloc(kBytes));
      std::memset(blocks.back(), i, kBytes);
    }
    for (void* block : blocks) std::free(block);
  };
  use();
  const auto before = faults();
  for (int round = 0; round < 20; ++round) use();
  EXPECT_LT(faults() - before, 1000) << "20 x 4 blocks have 19,500 pages";
}

TEST(CountingAllocator, LargeBlocksAreReused) {
  install();
  const void* first = at::empty({(int64_t{1} << 20) + 1000}).data_ptr();
  const void* second = at::empty({(int64_t{1} << 19) + 100}).data_ptr();
  EXPECT_EQ(first, second) << "for a tensor of another size, too";
  set_kept_limit(0);
  set_kept_limit(int64_t{1} << 30);
}

}  // namespace
}  // namespace dsj::memory
