#include "engine/train/device_marks.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <deque>

namespace dsj::train {
namespace {

class DeviceMarks final : public observe::Marks {
 public:
  explicit DeviceMarks(at::Device device) : device_(device) {}

  void clear() override { used_ = 0; }  // the events are reused

  size_t add() override {
    if (used_ == events_.size())
      events_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    events_[used_].record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
    return used_++;
  }

  double between_ms(size_t from, size_t to) override {
    events_[to].synchronize();
    return events_[from].elapsedTime(events_[to]);
  }

 private:
  const at::Device device_;
  std::deque<c10::Event> events_;
  size_t used_ = 0;
};

}  // namespace

std::unique_ptr<observe::Marks> marks_for(at::Device device) {
  if (device.is_cpu()) return std::make_unique<observe::HostMarks>();
  return std::make_unique<DeviceMarks>(device);
}

}  // namespace dsj::train
