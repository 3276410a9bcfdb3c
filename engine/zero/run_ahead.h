// Limits how far the host runs ahead of the device. The host queues a step in less time than the
// device needs for a few layers, and queued gathers hold memory. So each gather waits until the
// device has passed all earlier releases except the latest; one layer keeps it busy.
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
