#include "engine/train/device_marks.h"

#include <vector>

#include "engine/device/lanes.h"

namespace dsj::train {
namespace {

class DeviceMarks final : public observe::Marks {
 public:
  explicit DeviceMarks(at::Device device) : streams_(device::streams(device)) {}

  void clear() override { marks_.clear(); }

  size_t add() override {
    marks_.push_back(streams_.record(streams_.current(), /*timed=*/true));
    return marks_.size() - 1;
  }

  double between_ms(size_t from, size_t to) override {
    streams_.wait(*marks_[to]);
    return streams_.ms_between(*marks_[from], *marks_[to]);
  }

 private:
  device::Streams& streams_;
  std::vector<device::MarkPtr> marks_;
};

}  // namespace

std::unique_ptr<observe::Marks> marks_for(at::Device device) {
  if (device.is_cpu()) return std::make_unique<observe::HostMarks>();
  return std::make_unique<DeviceMarks>(device);
}

}  // namespace dsj::train
