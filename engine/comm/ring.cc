// The TCP ring: each rank sends to the next and receives from the previous one.
//
// reduce_scatter: slice s starts at rank s+1 and arrives, reduced, at rank s after world-1 hops.
// all_gather: slice s starts at rank s and visits all. Sending, receiving and reducing overlap:
// bytes that come in one hop can go out in the next at once. Every operation starts with a Frame,
// so that ranks that issue different operations find out.
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

constexpr std::int64_t kScratch = 512 << 10;    // bytes received before they are reduced
constexpr int kWordsWaitMs = 100;               // for a leaving rank's reason, after it closed
constexpr std::size_t kWordsMax = 500;          // of a leaving rank's reason
constexpr std::int64_t kTinyReduce = 16 << 10;  // bytes * world; below it all gather, then reduce

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

  /// Slices travel along the ring, those of the nearest rank in front. Hop h brings what the rank h
  /// places back sent: its first slice is this rank's, the others go on.
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

  /// Brings one byte of every rank to every rank: who has them all knows that all are here.
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
    const std::string words = reason.substr(0, kWordsMax);
    for (const Fd* fd : {&links_.next_words, &links_.prev_words}) {
      send(fd->get(), words.data(), words.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    links_ = {};  // the neighbours see the connections close
  }

 private:
  enum class Side { Previous, Next };

  int previous() const { return (rank_ + world_ - 1) % world_; }
  int next() const { return (rank_ + 1) % world_; }

  /// Half as many hops as a reduce_scatter and an all_gather. Every rank adds in rank order.
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
    // It sent its last words before it closed. In a world of 2 they may come on either connection.
    for (const Fd* fd : {&links_.prev_words, &links_.next_words}) {
      if (rank != (fd == &links_.prev_words ? previous() : next())) continue;
      pollfd entry{fd->get(), POLLIN, 0};
      std::array<char, kWordsMax> words{};
      if (poll(&entry, 1, kWordsWaitMs) <= 0) continue;
      const ssize_t n = recv(fd->get(), words.data(), words.size(), MSG_DONTWAIT);
      if (n <= 0) continue;
      return TransportError(
          who + " left the group: " + std::string(words.data(), static_cast<std::size_t>(n)));
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
