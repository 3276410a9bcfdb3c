// The simulation's time: one second a turn; nothing sleeps.
#pragma once

#include "kube/clock.h"
#include "operator/observe/times.h"

namespace dsj::op::sim {

class SimClock final : public kube::Clock {
 public:
  Milliseconds monotonic() const override { return now; }
  std::chrono::system_clock::time_point wall() const override { return at(); }
  bool sleep(Milliseconds, const kube::Cancel& cancel) override { return cancel.cancelled(); }
  double random() override { return 0.5; }

  Time at() const { return Time(Seconds(1'767'225'600)) + now; }
  Milliseconds now{0};
};

}  // namespace dsj::op::sim
