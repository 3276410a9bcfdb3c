// What a cancel promises to those who wait for it.
#include <gtest/gtest.h>

#include <optional>
#include <semaphore>
#include <thread>

#include "kube/http.h"

namespace dsj::kube {
namespace {

using std::chrono::milliseconds;

TEST(Cancel, CallsEachHookOnceAndALateOneAtOnce) {
  Cancel cancel;
  int calls = 0;
  const auto before = cancel.on_cancel([&] { ++calls; });
  {
    const auto ended = cancel.on_cancel([&] { calls += 100; });
  }
  cancel.cancel();
  cancel.cancel();
  EXPECT_EQ(calls, 1);
  const auto late = cancel.on_cancel([&] { ++calls; });
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(cancel.wait_for(milliseconds(0)));
}

TEST(Cancel, TheEndOfARegistrationWaitsForItsHook) {
  Cancel cancel;
  std::binary_semaphore running{0}, ended{0};
  bool ended_meanwhile = true;
  auto registration = std::make_optional(cancel.on_cancel([&] {
    running.release();
    ended_meanwhile = ended.try_acquire_for(milliseconds(200));
  }));
  std::thread canceller([&] { cancel.cancel(); });
  running.acquire();
  registration.reset();
  ended.release();
  canceller.join();
  EXPECT_FALSE(ended_meanwhile) << "what the hook uses may be gone by then";
}

}  // namespace
}  // namespace dsj::kube
