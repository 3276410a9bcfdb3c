#include "engine/device/streams.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "engine/device/host_pages.h"
#include "engine/device/lanes.h"
#include "engine/memory/device_memory.h"

namespace dsj::device {
namespace {

TEST(Streams, OfTheCpuAreDoneAtOnce) {
  Streams& cpu = streams(at::kCPU);
  const MarkPtr from = cpu.record(Lane::Compute, /*timed=*/true);
  const WithLane copies(cpu, Lane::Copy);
  EXPECT_EQ(cpu.current(), Lane::Compute) << "there is no other";
  const MarkPtr to = cpu.record(Lane::Copy, /*timed=*/true);
  EXPECT_TRUE(cpu.reached(*to));
  cpu.hold(Lane::Gather, *to);
  cpu.wait(*to);
  cpu.drain();
  EXPECT_GE(cpu.ms_between(*from, *to), 0);
  EXPECT_EQ(cpu.native(Lane::Reduce).handle, nullptr);
  EXPECT_STREQ(name_of(Lane::Gather), "gather");
}

TEST(HostMemory, OfTheCpuIsOrdinary) {
  at::Tensor memory = host_memory({3, 5}, at::kBFloat16, at::kCPU);
  EXPECT_EQ(memory.numel(), 15);
  EXPECT_TRUE(memory.fill_(2).eq(2).all().item<bool>());
}

std::vector<size_t> asked_for;
int given_back = 0;

/// libtorch's own page-locked blocks are rounded up to powers of two: half of a large one may be nobody's.
TEST(HostMemory, OfADeviceIsExactlyTheBytesThatAreAskedFor) {
  constexpr auto kKind = at::kPrivateUse1;
  provide_pages(kKind, {[](size_t bytes) {
                          asked_for.push_back(bytes);
                          return std::malloc(bytes);
                        },
                        [](void* memory) {
                          ++given_back;
                          std::free(memory);
                        }});
  memory::Ledger ledger;
  const memory::MemoryScope scope(memory::Class::Host, ledger);
  for (const int64_t elements : {1, 33, 4097, 300'001, 5'000'001}) {
    const at::Tensor block = host_memory({elements}, at::kFloat, at::Device(kKind, 0));
    EXPECT_EQ(asked_for.back(), static_cast<size_t>(4 * elements));
    EXPECT_EQ(ledger.live(memory::Class::Host), 4 * elements);
    EXPECT_EQ(block.nbytes(), asked_for.back());
  }
  EXPECT_EQ(asked_for.size(), 5u);
  EXPECT_EQ(given_back, 2) << "blocks above 1 MiB; small ones are kept for the next step";
  EXPECT_NE(host_memory({33}, at::kFloat, at::Device(kKind, 0)).data_ptr(), nullptr);
  EXPECT_EQ(asked_for.size(), 5u) << "and are used again for the same bytes";
  provide_pages(kKind, {});
}

}  // namespace
}  // namespace dsj::device
