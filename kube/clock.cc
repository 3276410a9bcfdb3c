#include "kube/clock.h"

#include <algorithm>
#include <random>

namespace dsj::kube {
namespace {

class SystemClock final : public Clock {
 public:
  Milliseconds monotonic() const override {
    return std::chrono::duration_cast<Milliseconds>(
        std::chrono::steady_clock::now().time_since_epoch());
  }
  std::chrono::system_clock::time_point wall() const override {
    return std::chrono::system_clock::now();
  }
  bool sleep(Milliseconds time, const Cancel& cancel) override { return cancel.wait_for(time); }
  double random() override {
    thread_local std::minstd_rand generator(std::random_device{}());
    return std::uniform_real_distribution<double>(0.0, 1.0)(generator);
  }
};

}  // namespace

Clock& system_clock() {
  static SystemClock clock;
  return clock;
}

Milliseconds backoff(int attempt, double random, Milliseconds asked) {
  constexpr int64_t kFirst = 200, kLast = 30'000;
  const int64_t whole = std::min(kLast, kFirst << std::clamp(attempt - 1, 0, 20));
  const auto spread =
      Milliseconds(static_cast<int64_t>(static_cast<double>(whole) * (0.5 + random / 2)));
  return std::max(spread, asked);
}

}  // namespace dsj::kube
