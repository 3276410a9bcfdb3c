#include "engine/device/lanes.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <chrono>
#include <map>
#include <mutex>

#include "common/check.h"

namespace dsj::device {
namespace {

using Clock = std::chrono::steady_clock;

struct Moment final : Mark {
  const Clock::time_point time = Clock::now();
};

class AtOnce final : public Streams {
 public:
  kernels::Stream native(Lane) override { return {}; }
  Lane current() const override { return Lane::Compute; }
  void enter(Lane) override {}
  MarkPtr record(Lane, bool timed) override {
    static const auto untimed = std::make_shared<const Moment>();
    return timed ? std::make_shared<const Moment>() : untimed;
  }
  void hold(Lane, const Mark&) override {}
  void wait(const Mark&) override {}
  bool reached(const Mark&) const override { return true; }
  double ms_between(const Mark& from, const Mark& to) const override {
    const auto& begin = static_cast<const Moment&>(from);
    const auto& end = static_cast<const Moment&>(to);
    return std::chrono::duration<double, std::milli>(end.time - begin.time).count();
  }
  void drain() override {}
};

struct Event final : Mark {
  Event(at::DeviceType kind, bool timed)
      : event(kind, timed ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT) {}
  c10::Event event;
};

const c10::Event& event_of(const Mark& mark) {
  return static_cast<const Event&>(mark).event;
}

/// Any device with libtorch streams. CUDA's are in libc10_cuda, loaded with libdsj_cuda.so.
class Queued final : public Streams {
 public:
  explicit Queued(at::Device place)
      : guard_(place.type()),
        place_(place),
        lanes_{guard_.getDefaultStream(place), pool(), pool(), pool()} {}

  kernels::Stream native(Lane lane) override {
    const c10::Stream stream = lanes_[static_cast<size_t>(lane)];
    return {guard_.getStreamNativeHandle(stream), stream.device_index()};
  }
  Lane current() const override {
    const c10::Stream stream = guard_.getStream(place_);
    for (size_t i = 0; i < lanes_.size(); ++i)
      if (lanes_[i] == stream) return static_cast<Lane>(i);
    DSJ_CHECK(false, "the thread's stream is none of the device's lanes");
  }
  void enter(Lane lane) override { guard_.exchangeStream(lanes_[static_cast<size_t>(lane)]); }
  MarkPtr record(Lane lane, bool timed) override {
    auto mark = std::make_shared<Event>(place_.type(), timed);
    mark->event.record(lanes_[static_cast<size_t>(lane)]);
    return mark;
  }
  void hold(Lane lane, const Mark& mark) override {
    event_of(mark).block(lanes_[static_cast<size_t>(lane)]);
  }
  void wait(const Mark& mark) override { event_of(mark).synchronize(); }
  bool reached(const Mark& mark) const override { return event_of(mark).query(); }
  double ms_between(const Mark& from, const Mark& to) const override {
    return event_of(from).elapsedTime(event_of(to));
  }
  void drain() override { guard_.synchronizeDevice(place_.index()); }

 private:
  c10::Stream pool() const {
    return guard_.getStreamFromGlobalPool(place_, /*high priority=*/true);
  }

  const c10::impl::VirtualGuardImpl guard_;
  const at::Device place_;
  const std::array<c10::Stream, kLaneCount> lanes_;
};

}  // namespace

const char* name_of(Lane lane) {
  constexpr std::array names{"compute", "gather", "reduce", "copy"};
  return names[static_cast<size_t>(lane)];
}

Streams& streams(at::Device place) {
  static AtOnce at_once;
  if (place.is_cpu()) return at_once;
  if (!place.has_index()) place = c10::impl::VirtualGuardImpl(place.type()).getDevice();
  static std::mutex mutex;
  static std::map<std::pair<at::DeviceType, at::DeviceIndex>, std::unique_ptr<Queued>> all;
  const std::lock_guard lock(mutex);
  auto& one = all[{place.type(), place.index()}];
  if (!one) one = std::make_unique<Queued>(place);
  return *one;
}

}  // namespace dsj::device
