// How far the host runs ahead of the device. The host queues a whole step in less time than the device
// takes for a few layers. Nothing it queues may pile up: so each gather waits until the device has
// passed every release before it but the latest, one layer being enough to keep it busy.
// Tested by: tests/engine/simulated/step_test.cc
#pragma once

#include <deque>

#include "engine/device/streams.h"

namespace dsj::zero {

class RunAhead {
 public:
  explicit RunAhead(device::Streams& streams) : streams_(streams) {}

  void before_gather() {
    while (released_.size() > kPending) {
      streams_.wait(*released_.front());
      released_.pop_front();
    }
  }
  void released() { released_.push_back(streams_.record(streams_.current())); }

 private:
  static constexpr size_t kPending = 1;
  device::Streams& streams_;
  std::deque<device::MarkPtr> released_;
};

}  // namespace dsj::zero
