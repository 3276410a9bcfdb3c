// The TCP ring: each rank sends to the next and receives from the previous one.
//
// reduce_scatter: slice s starts at rank s+1 and arrives, reduced, at rank s after world-1 hops.
// all_gather: slice s starts at rank s and visits all ranks. Sending, receiving and reducing
// overlap: bytes received in one hop can be sent in the next at once. Every operation starts with a
// Frame, so that ranks that issue different operations get an error.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "engine/comm/backends.h"
#include "engine/comm/frame.h"
#include "engine/comm/reduce.h"
#include "engine/comm/ring_flows.h"
#include "engine/comm/ring_links.h"
#include "engine/comm/slices.h"
#include "job/flight_log.h"

namespace dsj::comm {
namespace {

constexpr std::int64_t kScratch = 512 << 10;    // bytes received per reduction
constexpr int kReasonWaitMs = 100;              // wait for a leaving rank's reason, after it closed
constexpr std::size_t kReasonMax = 500;         // bytes of a leaving rank's reason
constexpr std::int64_t kTinyReduce = 16 << 10;  // bytes * world; below it: gather all, then reduce

class Ring final : public SliceTransport {
 public:
  Ring(RingLinks links, Fd wake, const Rendezvous& rendezvous)
      : SliceTransport(rendezvous.options().world),
        links_(std::move(links)),
        wake_(std::move(wake)),
        rank_(rendezvous.options().rank),
        world_(rendezvous.options().world),
        previous_name_(rendezvous.name(previous())),
        next_name_(rendezvous.name(next())),
        flight_(rendezvous.flight()) {}

  std::string_view name() const override { return "ring"; }

  std::int64_t sent() const override { return sent_; }

  void begin(const Request& request, Clock::time_point deadline) override {
    deadline_ = deadline;
    FrameFlow frames(frame_of(request));
    pump(frames);
    check_frame(frames.mine, frames.theirs, previous_name_);
  }

  void gather(const Slices& slices, std::span<const char> in) override {
    char* own = slices[static_cast<std::size_t>(rank_)].data();
    if (own != in.data() && !in.empty()) std::memcpy(own, in.data(), in.size());
    GatherFlow flow(slices, rank_);
    pump(flow);
  }

  void reduce(const Slices& slices, char* out, at::ScalarType dtype, Op op) override {
    if (scratch_.empty()) scratch_.resize(kScratch);
    ReduceFlow flow(slices, rank_, out, dtype, op, scratch_);
    pump(flow);
  }

  void all_reduce(std::span<char> data, at::ScalarType dtype, Op op) override {
    if (data.size() * static_cast<std::size_t>(world_) <= kTinyReduce) {
      return all_reduce_tiny(data, dtype, op);
    }
    const Slices slices = cut(data, world_, c10::elementSize(dtype));
    const std::span<char> own = slices[static_cast<std::size_t>(rank_)];
    reduce(slices, own.data(), dtype, op);
    gather(slices, own);
  }

  void broadcast(std::span<char> data, int root) override {
    BroadcastFlow flow(data, rank_, world_, root);
    pump(flow);
  }

  /// Slices travel along the ring, the nearest rank's first. Hop h receives what the rank h
  /// positions back sent: its first slice is for this rank, the others are forwarded.
  void all_to_all(const Slices& out, const Slices& in) override {
    const auto at = [&](const Slices& slices, int rank) {
      return slices[static_cast<std::size_t>((rank + world_) % world_)];
    };
    std::ranges::copy(at(in, rank_), at(out, rank_).begin());
    std::vector<char> moving, coming;
    for (int ahead = 1; ahead < world_; ++ahead) {
      const std::span<char> slice = at(in, rank_ + ahead);
      moving.insert(moving.end(), slice.begin(), slice.end());
    }
    for (int hop = 1; hop < world_; ++hop) {
      coming.resize(moving.size());
      HandOnFlow flow(moving, coming);
      pump(flow);
      const std::span<char> mine = at(out, rank_ - hop);
      const auto rest = coming.begin() + static_cast<std::ptrdiff_t>(mine.size());
      std::copy(coming.begin(), rest, mine.begin());
      moving.assign(rest, coming.end());
    }
  }

  /// Gathers one byte of every rank: a rank that has all bytes knows that all ranks are here.
  void meet() override {
    std::vector<char> all(static_cast<std::size_t>(world_));
    GatherFlow flow(cut(all, world_, 1), rank_);
    pump(flow);
  }

  void interrupt() override {
    interrupted_ = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(wake_.get(), &one, sizeof one);
  }

  void leave(const std::string& reason) override {
    const std::string text = reason.substr(0, kReasonMax);
    for (const Fd* fd : {&links_.next_reason, &links_.prev_reason}) {
      send(fd->get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    links_ = {};  // the neighbours see the connections close
  }

 private:
  enum class Side { Previous, Next };

  int previous() const { return (rank_ + world_ - 1) % world_; }
  int next() const { return (rank_ + 1) % world_; }

  /// Needs half as many hops as reduce_scatter plus all_gather. Every rank adds in rank order.
  void all_reduce_tiny(std::span<char> data, at::ScalarType dtype, Op op) {
    std::vector<char> all(data.size() * static_cast<std::size_t>(world_));
    const Slices slices = cut(all, world_, data.size());
    std::ranges::copy(data, slices[static_cast<std::size_t>(rank_)].begin());
    GatherFlow flow(slices, rank_);
    pump(flow);
    std::vector<const void*> sources;
    for (const std::span<char> slice : slices) sources.push_back(slice.data());
    const std::int64_t n = static_cast<std::int64_t>(data.size() / c10::elementSize(dtype));
    comm::reduce(data.data(), sources, n, dtype, op);
  }

  void pump(Flow& flow) {
    while (!flow.send_done() || !flow.receive_done()) {
      const bool sent = send_some(flow);
      const bool received = receive_some(flow);
      if (!sent && !received) wait(flow);
    }
  }

  bool send_some(Flow& flow) {
    const std::span<const char> data = flow.send_done() ? std::span<const char>() : flow.sendable();
    if (data.empty()) return false;
    const ssize_t n =
        send(links_.to_next.get(), data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) {
      flow.sent(n);
      sent_ += n;
    }
    if (n < 0 && errno != EAGAIN && errno != EINTR) throw broken(Side::Next, errno);
    return n > 0;
  }

  bool receive_some(Flow& flow) {
    if (flow.receive_done()) return false;
    const std::span<char> space = flow.receivable();
    const ssize_t n = recv(links_.from_prev.get(), space.data(), space.size(), MSG_DONTWAIT);
    if (n > 0) flow.received(n);
    if (n == 0) throw broken(Side::Previous, 0);
    if (n < 0 && errno != EAGAIN && errno != EINTR) throw broken(Side::Previous, errno);
    return n > 0;
  }

  void wait(const Flow& flow) {
    if (interrupted_) throw TransportError("interrupted");
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    const int rank = flow.receive_done() ? next_name_ : previous_name_;
    if (left <= 0) throw TransportTimeout("waiting for rank " + std::to_string(rank));
    const FlightWait noted(flight_.get(), rank);
    pollfd entries[] = {{wake_.get(), POLLIN, 0}, {-1, POLLIN, 0}, {-1, POLLOUT, 0}};
    if (!flow.receive_done()) entries[1].fd = links_.from_prev.get();
    if (!flow.send_done() && !flow.sendable().empty()) entries[2].fd = links_.to_next.get();
    poll(entries, 3, static_cast<int>(std::min<std::int64_t>(left + 1, 60'000)));
  }

  TransportError broken(Side side, int error) const {
    const int rank = side == Side::Next ? next() : previous();
    const std::string who =
        "rank " + std::to_string(side == Side::Next ? next_name_ : previous_name_);
    if (error != 0 && error != ECONNRESET && error != EPIPE) {
      return TransportError("the connection to " + who + " broke: " + std::strerror(error));
    }
    // The peer sent its reason before it closed. With two ranks it may come on either connection.
    for (const Fd* fd : {&links_.prev_reason, &links_.next_reason}) {
      if (rank != (fd == &links_.prev_reason ? previous() : next())) continue;
      pollfd entry{fd->get(), POLLIN, 0};
      std::array<char, kReasonMax> reason{};
      if (poll(&entry, 1, kReasonWaitMs) <= 0) continue;
      const ssize_t n = recv(fd->get(), reason.data(), reason.size(), MSG_DONTWAIT);
      if (n <= 0) continue;
      return TransportError(
          who + " left the group: " + std::string(reason.data(), static_cast<std::size_t>(n)));
    }
    return TransportError(who + " closed the connection");
  }

  RingLinks links_;
  const Fd wake_;
  const int rank_;
  const int world_;
  const int previous_name_, next_name_;  // in messages
  const std::shared_ptr<FlightLog> flight_;
  Clock::time_point deadline_;
  std::atomic<std::int64_t> sent_ = 0;
  std::atomic<bool> interrupted_ = false;
  std::vector<char> scratch_;
};

}  // namespace

Result<std::unique_ptr<SliceTransport>> make_ring(Rendezvous& rendezvous) {
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) {
    return fail(ErrorKind::Environment, std::string("no eventfd: ") + std::strerror(errno));
  }
  DSJ_TRY(RingLinks links, connect_ring(rendezvous));
  return std::make_unique<Ring>(std::move(links), std::move(wake), rendezvous);
}

}  // namespace dsj::comm
