#include "engine/device/streams.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/device/host_pages.h"
#include "engine/device/lanes.h"

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

}  // namespace
}  // namespace dsj::device
