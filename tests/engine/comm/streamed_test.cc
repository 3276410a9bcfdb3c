#include "engine/comm/streamed.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string_view>
#include <thread>

namespace dsj::comm {
namespace {

/// Operations that are done when they are launched: a CPU's lanes do everything at once.
class AtOnce final : public StreamTransport {
 public:
  std::string_view name() const override { return "at once"; }
  void launch(const Request&, device::Lane, Clock::time_point) override {}
  void check() override {}
  void abort() override {}
  void finish(Clock::time_point) override {}
};

/// A tensor whose memory takes its time to be freed.
at::Tensor slow_to_free(int64_t elements) {
  auto* const values = new float[static_cast<size_t>(elements)]();
  return at::from_blob(
      values, {elements},
      [](void* memory) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        delete[] static_cast<float*>(memory);
      },
      at::kFloat);
}

/// The watchdog sees the end of an operation at any time. Whoever waits must not find that it still
/// holds the memory: then a released layer would live on while the next ones are gathered.
TEST(Streamed, AfterWaitTheMemoryIsTheCallersAlone) {
  const auto group =
      make_streamed(std::make_unique<AtOnce>(), 0, 2, at::kCPU, std::chrono::seconds(30));
  const at::Tensor out = at::zeros({8});
  const WorkPtr work = group->all_gather(out, slow_to_free(4), {});
  while (!work->done()) std::this_thread::yield();
  work->wait();
  EXPECT_EQ(out.use_count(), 1u);
  group->shutdown();
}

/// A library that finds no room for its own buffers, or fails in another way.
template <typename Failure>
class Refusing final : public StreamTransport {
 public:
  std::string_view name() const override { return "refusing"; }
  void launch(const Request&, device::Lane, Clock::time_point) override {
    throw Failure("calloc 6291456 bytes");
  }
  void check() override {}
  void abort() override {}
  void finish(Clock::time_point) override {}
};

template <typename Failure>
CollectiveError::Facts refused() {
  const auto group = make_streamed(std::make_unique<Refusing<Failure>>(), 1, 2, at::kCPU,
                                   std::chrono::seconds(30));
  try {
    group->all_gather(at::zeros({8}), at::zeros({4}), {})->wait();
  } catch (const CollectiveError& error) {
    return error.facts();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

// Taken for a lost peer, it would be tried again for ever, and every try would find the same GPU full.
TEST(Streamed, ADeviceWithoutMemoryIsNoLostPeer) {
  const auto facts = refused<DeviceMemoryError>();
  EXPECT_TRUE(facts.out_of_memory);
  EXPECT_EQ(facts.reason, "failed: calloc 6291456 bytes");
  EXPECT_FALSE(refused<TransportError>().out_of_memory);
}

TEST(Streamed, WhatIsNotWaitedForIsFreedWhenItIsDone) {
  const auto group =
      make_streamed(std::make_unique<AtOnce>(), 0, 2, at::kCPU, std::chrono::seconds(30));
  const at::Tensor out = at::zeros({8});
  group->all_gather(out, at::zeros({4}), {}).reset();
  group->shutdown();  // joins the watchdog
  EXPECT_EQ(out.use_count(), 1u);
}

}  // namespace
}  // namespace dsj::comm
