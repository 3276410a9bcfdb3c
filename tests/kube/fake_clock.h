// A clock that a test moves: sleeping is instantaneous and counted.
#pragma once

#include "kube/clock.h"

namespace dsj::kube::testing {

class FakeClock : public Clock {
 public:
  Milliseconds monotonic() const override { return now; }
  std::chrono::system_clock::time_point wall() const override {
    return std::chrono::system_clock::time_point(std::chrono::seconds(1'767'225'600)) + now;
  }
  bool sleep(Milliseconds time, const Cancel& cancel) override {
    now += time;
    slept += time;
    ++sleeps;
    return cancel.cancelled();
  }
  double random() override { return 0.5; }

  Milliseconds now{0}, slept{0};
  int sleeps = 0;
};

}  // namespace dsj::kube::testing
