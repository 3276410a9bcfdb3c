#include "engine/comm/streamed.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "common/check.h"
#include "engine/device/lanes.h"
#include "engine/memory/device_memory.h"

namespace dsj::comm {
namespace {

constexpr std::chrono::milliseconds kLook{2};  // polling period of the watchdog while work runs

/// Shared between the group, its works and the watchdog.
struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<CollectiveError::Facts> failure;
};

class StreamedWork final : public Work {
 public:
  StreamedWork(std::shared_ptr<State> state, device::Streams& streams, Request request)
      : state_(std::move(state)), streams_(streams), request_(std::move(request)) {}

  void wait() override {
    const device::Lane lane = streams_.current();
    device::MarkPtr mark;
    bool held = false;
    {
      const std::lock_guard lock(state_->mutex);
      throw_failure();
      mark = mark_;
      held = held_[static_cast<size_t>(lane)];
    }
    if (request_.kind == Kind::Barrier) {
      streams_.wait(*mark);
      const std::lock_guard lock(state_->mutex);
      throw_failure();
      return;
    }
    if (!held) streams_.hold(lane, *mark);
    std::vector<ChunkPair> kept;  // declared before the lock: freed after it
    const std::lock_guard lock(state_->mutex);
    held_[static_cast<size_t>(lane)] = true;  // only now: another thread must not skip the wait
    kept.swap(request_.chunks);
  }
  bool done() override {
    const std::lock_guard lock(state_->mutex);
    return done_;
  }

  // With the state's mutex held:
  const Request& request() const { return request_; }
  void queued(device::MarkPtr mark) { mark_ = std::move(mark); }
  bool reached() const { return streams_.reached(*mark_); }
  void finish(bool failed) {
    done_ = true;
    failed_ = failed;
    state_->changed.notify_all();
  }

 private:
  void throw_failure() const {
    if (failed_ || (!done_ && state_->failure)) throw CollectiveError(*state_->failure);
  }

  const std::shared_ptr<State> state_;
  device::Streams& streams_;
  Request request_;  ///< keeps its chunks until wait(), or until the work is destroyed
  device::MarkPtr mark_;
  std::array<bool, device::kLaneCount> held_{};  ///< lanes that already wait
  bool done_ = false, failed_ = false;
};
using StreamedWorkPtr = std::shared_ptr<StreamedWork>;

class Streamed final : public Collectives {
 public:
  Streamed(std::unique_ptr<StreamTransport> transport, int rank, int world, at::Device device,
           std::chrono::milliseconds timeout)
      : Collectives(rank, world, device),
        transport_(std::move(transport)),
        device_(device),
        streams_(device::streams(device)),
        timeout_(timeout),
        watchdog_([this] { watch(); }) {}

  ~Streamed() override {
    abort("was abandoned: its group was closed");
    close();
  }

  std::string_view backend() const override { return transport_->name(); }

  void shutdown() override {
    streams_.drain();
    close();
    const std::lock_guard lock(state_->mutex);
    if (state_->failure) throw CollectiveError(*state_->failure);
  }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(state_->mutex);
    if (abort_reason_.empty()) abort_reason_ = reason;
    state_->changed.notify_all();
  }

 protected:
  WorkPtr issue(Request request) override {
    const auto work = std::make_shared<StreamedWork>(state_, streams_, std::move(request));
    const std::lock_guard lock(state_->mutex);
    const Request& asked = work->request();
    DSJ_CHECK(!closing_, "%s was issued after shutdown", name_of(asked.kind));
    if (!state_->failure && !abort_reason_.empty()) fail(asked, Clock::now(), abort_reason_);
    if (!state_->failure) {
      try {
        launch(work);
        return work;
      } catch (const std::exception& error) {
        fail(asked, Clock::now(), error);
      }
    }
    operation_done();
    work->finish(true);
    return work;
  }

 private:
  /// The operations in flight on a lane, the oldest first.
  struct Flight {
    std::deque<StreamedWorkPtr> works;
    Clock::time_point begin;  ///< when the first of them became the oldest
  };

  void launch(const StreamedWorkPtr& work) {
    const device::Lane lane = lane_of(work->request().kind);
    streams_.hold(lane, *streams_.record(streams_.current()));
    transport_->launch(work->request(), lane, Clock::now() + timeout_);
    work->queued(streams_.record(lane));
    Flight& flight = flights_[static_cast<size_t>(lane)];
    if (flight.works.empty()) flight.begin = Clock::now();
    flight.works.push_back(work);
    state_->changed.notify_all();
  }

  bool idle() const {
    return std::ranges::all_of(flights_, [](const Flight& flight) { return flight.works.empty(); });
  }

  void watch() {
    const memory::CountDevice counts;
    // A new thread's device is GPU 0. CUDA calls from it would create a context of this process
    // there, half a gigabyte on a GPU that belongs to another rank.
    const c10::DeviceGuard guard(device_);
    std::unique_lock lock(state_->mutex);
    while (!closing_ || !idle()) {
      if (idle()) {
        if (!abort_reason_.empty()) transport_->abort();
        state_->changed.wait(lock, [&] { return closing_ || !idle(); });
        continue;
      }
      bool ended = false;
      // Work without a waiter frees its tensors when it is destroyed: not under the lock.
      std::vector<StreamedWorkPtr> dropped;
      for (Flight& flight : flights_) ended |= !flight.works.empty() && look(flight, dropped);
      if (!ended) state_->changed.wait_for(lock, kLook);
      lock.unlock();
      dropped.clear();
      lock.lock();
    }
    end();
  }

  /// Whether the lane's oldest operation is done or failed; if so, removes it from the lane.
  bool look(Flight& flight, std::vector<StreamedWorkPtr>& dropped) {
    StreamedWork& work = *flight.works.front();
    if (!state_->failure && !succeeded(work, flight.begin) && !state_->failure) return false;
    work.finish(state_->failure.has_value());
    operation_done();
    dropped.push_back(std::move(flight.works.front()));
    flight.works.pop_front();
    flight.begin = Clock::now();
    return true;
  }

  bool succeeded(const StreamedWork& work, Clock::time_point begin) {
    try {
      if (work.reached()) return true;
      if (!abort_reason_.empty()) {
        fail(work.request(), begin, abort_reason_);
      } else {
        transport_->check();
        if (Clock::now() >= begin + timeout_)
          throw TransportTimeout("in " + std::string(transport_->name()));
      }
    } catch (const TransportTimeout& error) {
      const std::chrono::duration<double> seconds = Clock::now() - begin;
      fail(work.request(), begin,
           "timed out after " + format_seconds(seconds.count()) + " " + error.what());
    } catch (const std::exception& error) {
      fail(work.request(), begin, error);
    }
    return false;
  }

  void fail(const Request& request, Clock::time_point begin, const std::exception& error) {
    fail(request, begin, "failed: " + brief(error),
         dynamic_cast<const DeviceMemoryError*>(&error) != nullptr);
  }

  /// Call with the mutex held. Aborts the operations, so that lanes that wait for them continue.
  void fail(const Request& request, Clock::time_point begin, std::string reason,
            bool out_of_memory = false) {
    if (state_->failure) return;
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    state_->failure = CollectiveError::Facts{.rank = world_rank(),
                                             .kind = request.kind,
                                             .sequence = request.sequence,
                                             .unit = request.unit,
                                             .seconds = seconds.count(),
                                             .group = group(),
                                             .reason = std::move(reason),
                                             .out_of_memory = out_of_memory};
    transport_->abort();
  }

  void end() {
    try {
      if (!state_->failure && abort_reason_.empty()) transport_->finish(Clock::now() + timeout_);
    } catch (const std::exception&) {
      // Nothing was in flight: the peers left first. abort() frees the rest.
    }
    transport_->abort();
  }

  void close() {
    {
      const std::lock_guard lock(state_->mutex);
      closing_ = true;
      state_->changed.notify_all();
    }
    if (watchdog_.joinable()) watchdog_.join();
  }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  const std::unique_ptr<StreamTransport> transport_;
  const at::Device device_;
  device::Streams& streams_;
  const std::chrono::milliseconds timeout_;
  std::array<Flight, device::kLaneCount> flights_;
  bool closing_ = false;
  std::string abort_reason_;
  std::thread watchdog_;  // last member: starts when all others exist
};

}  // namespace

std::unique_ptr<Collectives> make_streamed(std::unique_ptr<StreamTransport> transport, int rank,
                                           int world, at::Device device,
                                           std::chrono::milliseconds timeout) {
  return std::make_unique<Streamed>(std::move(transport), rank, world, device, timeout);
}

}  // namespace dsj::comm
