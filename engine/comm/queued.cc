#include "engine/comm/queued.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "common/check.h"
#include "common/format.h"

namespace dsj::comm {

std::string format_seconds(double seconds) {
  return text::format("%.1f s", seconds);
}

std::string brief(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error ? torch_error->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

namespace {

/// Done when the thread marks it. Keeps the failure, if there is one.
class QueuedWork final : public Work {
 public:
  void wait() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_.load(); });
    if (error_) throw CollectiveError(*error_);
  }
  bool done() override { return done_; }

  void finish(std::optional<CollectiveError::Facts> error) {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    done_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> done_ = false;
  std::optional<CollectiveError::Facts> error_;
};

class Queued final : public Collectives {
 public:
  Queued(std::unique_ptr<Transport> transport, int rank, int world,
         std::chrono::milliseconds timeout)
      : Collectives(rank, world, at::kCPU),
        transport_(std::move(transport)),
        name_(transport_->name()),
        timeout_(timeout),
        thread_([this] { loop(); }) {}

  ~Queued() override {
    abort("was abandoned: its group was closed");
    close();
  }

  std::string_view backend() const override { return name_; }

  void shutdown() override {
    close();
    const std::lock_guard lock(mutex_);
    if (failure_) throw CollectiveError(*failure_);
  }

  std::int64_t socket_bytes() const override {
    const std::lock_guard lock(mutex_);
    return transport_ ? transport_->sent() : 0;
  }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    if (ended_) return;  // nothing is in flight, and the transport may be destroyed
    if (abort_reason_.empty()) abort_reason_ = reason;
    transport_->interrupt();
    changed_.notify_all();
  }

 protected:
  WorkPtr issue(Request request) override {
    auto work = std::make_shared<QueuedWork>();
    const std::lock_guard lock(mutex_);
    DSJ_CHECK(!closing_, "%s was issued after shutdown", name_of(request.kind));
    queue_.push_back({std::move(request), work});
    changed_.notify_all();
    return work;
  }

 private:
  struct Item {
    Request request;
    std::shared_ptr<QueuedWork> work;
  };

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      const auto must_leave = [&] { return !abort_reason_.empty() && !left_; };
      changed_.wait(lock, [&] { return closing_ || !queue_.empty() || must_leave(); });
      if (queue_.empty() && must_leave()) {  // idle: tell the peers now
        transport_->leave(abort_reason_);
        left_ = true;
        continue;
      }
      if (queue_.empty()) break;
      Item item = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      finish(item);
      lock.lock();
    }
    ended_ = true;
    if (!left_) transport_->leave("");
    transport_.reset();  // closes the connections now, not when the owner is destroyed
  }

  void finish(Item& item) {
    const auto begin = Clock::now();
    std::string reason = poison();
    if (!failure_ && reason.empty()) reason = run(item.request, begin);
    if (!failure_ && !reason.empty()) {
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      const CollectiveError::Facts facts{.rank = world_rank(),
                                         .kind = item.request.kind,
                                         .sequence = item.request.sequence,
                                         .unit = item.request.unit,
                                         .seconds = seconds,
                                         .group = group(),
                                         .reason = reason};
      {
        const std::lock_guard lock(mutex_);
        failure_ = facts;
      }
      if (!left_) transport_->leave(CollectiveError(facts).what());
      left_ = true;
    }
    item.request.chunks.clear();  // frees the tensors before the waiter continues
    operation_done();
    item.work->finish(failure_);
  }

  std::string poison() {
    const std::lock_guard lock(mutex_);
    return abort_reason_;
  }

  /// Returns the reason for the failure; empty on success.
  std::string run(const Request& request, Clock::time_point begin) {
    try {
      transport_->run(request, begin + timeout_);
      return {};
    } catch (const TransportTimeout& error) {
      const std::chrono::duration<double> seconds = Clock::now() - begin;
      return "timed out after " + format_seconds(seconds.count()) + " " + error.what();
    } catch (const std::exception& error) {
      const std::string aborted = poison();
      return aborted.empty() ? "failed: " + brief(error) : aborted;
    }
  }

  std::unique_ptr<Transport> transport_;
  const std::string name_;
  const std::chrono::milliseconds timeout_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;
  bool closing_ = false;
  bool ended_ = false;
  bool left_ = false;  // used by the thread only
  std::string abort_reason_;
  std::optional<CollectiveError::Facts> failure_;  // written by the thread, under mutex_
  std::thread thread_;                             // last member: starts when all others exist
};

}  // namespace

std::unique_ptr<Collectives> make_queued(std::unique_ptr<Transport> transport, int rank, int world,
                                         std::chrono::milliseconds timeout) {
  return std::make_unique<Queued>(std::move(transport), rank, world, timeout);
}

}  // namespace dsj::comm
