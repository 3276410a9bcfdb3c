// What the late device finds, on a few operations: each fault with the same ones in order beside it.
#include "tests/engine/simulated/late.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/device/device.h"
#include "engine/device/host_pages.h"
#include "engine/memory/device_memory.h"

namespace dsj::simulated {
namespace {

using device::Lane;
using device::WithLane;
using testing::Test;

class LateDevice : public Test {
 protected:
  void expect(const std::string& finding) const {
    const auto findings = late.findings();
    if (finding.empty()) {
      EXPECT_TRUE(findings.empty()) << findings[0];
      return;
    }
    ASSERT_FALSE(findings.empty()) << "not found: " << finding;
    EXPECT_NE(findings[0].find(finding), std::string::npos) << findings[0];
    EXPECT_NE(findings[0].find(" | "), std::string::npos) << "both places: " << findings[0];
  }
  at::Tensor ones() const { return at::ones({64}, at::TensorOptions(late.device())); }

  const c10::AutoGradMode no_autograd{false};
  Late late{0, 7};
  device::Streams& lanes = device::streams(late.device());
};

TEST_F(LateDevice, RunsNothingBeforeTheHostWaitsForIt) {
  late.reseed(0);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    late.reseed(seed);
    at::Tensor x = ones();
    for (int i = 0; i < 5; ++i) x.mul_(2).add_(1);
    EXPECT_EQ(x.sum().item<float>(), 64 * 63) << "in the order of the stream, whatever the seed";
  }
  expect("");
}

TEST_F(LateDevice, OperationsOfTwoLanesNeedAnEvent) {
  for (const bool held : {true, false}) {
    const at::Tensor x = ones(), y = ones();
    const auto made = lanes.record(Lane::Compute);
    if (held) lanes.hold(Lane::Gather, *made);
    {
      const WithLane lane(lanes, Lane::Gather);
      y.copy_(x);
    }
    lanes.hold(Lane::Compute, *lanes.record(Lane::Gather));
    expect(held ? "" : "read, and no event orders it after its write: aten::fill_");
  }
}

TEST_F(LateDevice, AWriteMustWaitForReadsBeforeIt) {
  for (const bool held : {true, false}) {
    const at::Tensor x = ones(), y = ones();
    lanes.hold(Lane::Copy, *lanes.record(Lane::Compute));
    {
      const WithLane lane(lanes, Lane::Copy);
      y.copy_(x);
    }
    const auto copied = lanes.record(Lane::Copy);
    if (held) lanes.hold(Lane::Compute, *copied);
    x.zero_();
    expect(held ? "" : "written while a read of it is pending");
    lanes.hold(Lane::Compute, *copied);
  }
}

/// What is freed its lane may use at once.
TEST_F(LateDevice, MemoryIsFreedWhenItsLaneHasPassedAllUses) {
  for (const bool held : {true, false}) {
    at::Tensor x = ones();
    const at::Tensor y = ones();
    lanes.hold(Lane::Copy, *lanes.record(Lane::Compute));
    {
      const WithLane lane(lanes, Lane::Copy);
      y.copy_(x);
    }
    const auto copied = lanes.record(Lane::Copy);
    if (held) lanes.hold(Lane::Compute, *copied);
    x.reset();
    expect(held ? "" : "freed while an operation is pending: copy");
    lanes.hold(Lane::Compute, *copied);
  }
}

TEST_F(LateDevice, FreedMemoryIsUsedAgainInTheLanesOrder) {
  at::Tensor x = ones();
  const void* const at = x.const_data_ptr();
  const at::Tensor sum = x.sum();
  x.reset();
  const at::Tensor next = at::zeros({64}, at::TensorOptions(late.device()));
  EXPECT_EQ(next.const_data_ptr(), at);
  EXPECT_EQ(sum.item<float>(), 64) << "the sum came before the zeros";
  expect("");
}

/// A result with as many elements as values say: its shape is there when the call returns, as on a GPU,
/// where such an operation stops the host.
TEST_F(LateDevice, AShapeThatIsInTheValuesIsWaitedFor) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    late.reseed(seed);
    const at::Tensor x = at::zeros({64}, at::TensorOptions(late.device()));
    x.narrow(0, 20, 3).fill_(1);
    const at::Tensor found = x.nonzero().view(-1);
    ASSERT_EQ(found.numel(), 3);
    const at::Tensor twice = at::cat({found, found.add(1)});
    const auto [values, place] = at::_unique(twice, /*sorted=*/true, /*return_inverse=*/true);
    ASSERT_EQ(values.numel(), 4);
    EXPECT_EQ(values.sum().item<int64_t>(), 20 + 21 + 22 + 23);
    EXPECT_EQ(place.sum().item<int64_t>(), 0 + 1 + 2 + 1 + 2 + 3);
    expect("");
  }
}
/// What such an operation reads must be ordered, like any other's.
TEST_F(LateDevice, AShapeThatIsInTheValuesNeedsAnEvent) {
  const at::Tensor x = ones();
  {
    const WithLane lane(lanes, Lane::Gather);
    EXPECT_GE(x.nonzero().numel(), 0);
  }
  lanes.hold(Lane::Compute, *lanes.record(Lane::Gather));
  expect("read, and no event orders it after its write: aten::fill_");
}

TEST_F(LateDevice, AHostValueIsThereAfterTheWaitAndNotBefore) {
  for (const bool waits : {true, false}) {
    late.reseed(0);
    device::HostRead read(ones().sum());
    if (!waits) late.leave_out_wait(0);
    EXPECT_EQ(read.get().sizes().size(), 0u);
    const float value = *read.get().const_data_ptr<float>();
    EXPECT_TRUE(!waits || value == 64) << value;
    expect(waits ? "" : "the host touches a value before it is there: copy to the host");
  }
}

TEST_F(LateDevice, TheHostLeavesAloneWhatACopyHasYetToRead) {
  for (const bool waits : {true, false}) {
    const at::Tensor host = device::host_memory({64}, at::kFloat, late.device());
    host.fill_(3);
    const at::Tensor there = at::empty({64}, at::TensorOptions(late.device()));
    there.copy_(host, /*non_blocking=*/true);
    const auto copied = lanes.record(Lane::Compute);
    EXPECT_EQ(host[0].item<float>(), 3) << "it may read";
    if (waits) lanes.wait(*copied);
    host.fill_(4);
    expect(waits ? "" : "the host writes what a copy has yet to read: copy to the device");
    lanes.wait(*copied);
    const auto sum = there.sum().item<float>();
    EXPECT_TRUE(!waits || sum == 3 * 64) << sum;
  }
}

/// Fault: a thread of the engine that looks after GPU 1 and has begun, as every thread, with GPU 0.
TEST(LateThreads, MakeTheDeviceTheirOwn) {
  for (const bool own : {true, false}) {
    Late late(1, 3);
    device::Streams& lanes = device::streams(late.device());
    const auto mark = lanes.record(Lane::Compute);
    std::thread([&] {
      std::optional<c10::DeviceGuard> guard;
      if (own) guard.emplace(late.device());
      (void)lanes.reached(*mark);
    }).join();
    const auto findings = late.findings();
    EXPECT_EQ(findings.empty(), own);
    if (!own) {
      EXPECT_NE(findings[0].find("its own is 0, the device's number 1"), std::string::npos)
          << findings[0];
    }
  }
}

TEST_F(LateDevice, MemoryIsCountedByClass) {
  memory::Ledger ledger;
  const memory::CountDevice counts;
  const memory::MemoryScope scope(memory::Class::Gradients, ledger);
  {
    const at::Tensor x = at::empty({100}, at::TensorOptions(late.device()));
    EXPECT_EQ(ledger.live(memory::Class::Gradients), 400);
    const at::Tensor host = device::host_memory({10}, at::kFloat, late.device());
    EXPECT_EQ(ledger.live(memory::Class::Gradients), 440) << "page-locked memory, exactly";
  }
  EXPECT_EQ(ledger.live(), 0);
  EXPECT_EQ(ledger.peak(), 440);
}

/// Gathers and reductions of two ranks, issued before anything has run.
TEST(LateCollectives, MeetWhateverTheOrders) {
  const auto meeting = make_meeting(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      const c10::AutoGradMode no_autograd(false);
      Late late(rank, static_cast<uint64_t>(rank));
      const auto group = join(meeting, late, rank, 2);
      {
        const auto options = at::TensorOptions(late.device());
        for (uint64_t seed = 0; seed < 20; ++seed) {
          late.reseed(2 * seed + static_cast<uint64_t>(rank));
          const at::Tensor sum = at::full({3}, rank + 1.0, options), all = at::empty({4}, options);
          const at::Tensor own = at::full({2}, rank + 5.0, options);
          const auto first = group->all_reduce(sum, comm::Op::Sum, {});
          const auto second = group->all_gather(all, own, {});
          second->wait();
          EXPECT_EQ(all.sum().item<float>(), 22);
          first->wait();
          EXPECT_EQ(sum.sum().item<float>(), 9);
          group->barrier({})->wait();
        }
      }
      group->shutdown();
      EXPECT_TRUE(late.findings().empty()) << late.findings()[0];
    });
  }
  for (auto& rank : ranks) rank.join();
}

TEST(LateCollectives, PartsOfTheRanksWorkBesideTheirWorld) {
  const auto meeting = make_meeting(4);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      const c10::AutoGradMode no_autograd(false);
      Late late(rank, static_cast<uint64_t>(rank));
      const auto world = join(meeting, late, rank, 4);
      {
        const auto half = world->split({"half", rank / 2, 0});
        const auto odd = world->split({"odd", rank % 2 == 1 ? 0 : comm::Part::kNone, -rank});
        ASSERT_TRUE(half.has_value() && odd.has_value());
        EXPECT_EQ((*half)->world_rank(), rank);
        EXPECT_EQ(*odd != nullptr, rank % 2 == 1);
        const auto options = at::TensorOptions(late.device());
        const at::Tensor all = at::full({3}, rank + 1.0, options), two = all.clone();
        const auto of_all = world->all_reduce(all, comm::Op::Sum, {});
        const auto of_two = (*half)->all_reduce(two, comm::Op::Sum, {});
        of_two->wait();
        EXPECT_EQ(two[0].item<float>(), rank < 2 ? 3 : 7);
        of_all->wait();
        EXPECT_EQ(all[2].item<float>(), 10);
        if (*odd) {
          const at::Tensor both = at::empty({2}, options), own = at::full({1}, rank + 0.0, options);
          (*odd)->all_gather(both, own, {})->wait();
          EXPECT_EQ(both[0].item<float>(), 3) << "backwards";
          (*odd)->shutdown();
        }
        (*half)->shutdown();
      }
      world->shutdown();
      EXPECT_TRUE(late.findings().empty()) << late.findings()[0];
    });
  }
  for (auto& rank : ranks) rank.join();
}

}  // namespace
}  // namespace dsj::simulated
