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
#include "engine/comm/ring_links.h"
#include "engine/comm/slices.h"

namespace dsj::comm {
namespace {

constexpr std::int64_t kSendMax = 1 << 20;      // bytes per send()
constexpr std::int64_t kScratch = 512 << 10;    // bytes received before they are reduced
constexpr int kWordsWaitMs = 100;               // for a leaving rank's reason, after it closed
constexpr std::size_t kWordsMax = 500;          // of a leaving rank's reason
constexpr std::int64_t kTinyReduce = 16 << 10;  // bytes * world; below it all gather, then reduce

/// The bytes that go through this rank: what can be sent now, and where to put what comes.
class Flow {
 public:
  virtual ~Flow() = default;
  virtual bool send_done() const = 0;
  virtual std::span<const char> sendable() const = 0;  ///< empty: nothing now
  virtual void sent(std::int64_t bytes) = 0;
  virtual bool receive_done() const = 0;
  virtual std::span<char> receivable() = 0;
  virtual void received(std::int64_t bytes) = 0;
};

/// World slices in world-1 hops. Hop h sends slice (first - h) and receives slice (first - 1 - h):
/// what hop h receives, hop h+1 sends.
class Hops : public Flow {
 public:
  Hops(Slices slices, int first) : slices_(std::move(slices)), first_(first) {
    skip_empty(send_hop_, send_offset_, first_);
    skip_empty(receive_hop_, receive_offset_, first_ - 1);
  }

  bool send_done() const final { return send_hop_ == last(); }
  bool receive_done() const final { return receive_hop_ == last(); }

  std::span<const char> sendable() const final {
    if (send_done()) return {};
    const std::span<char> slice = slice_at(first_ - send_hop_);
    std::int64_t limit = static_cast<std::int64_t>(slice.size());
    if (send_hop_ > 0 && send_hop_ - 1 >= receive_hop_) {
      limit = send_hop_ - 1 == receive_hop_ ? receive_offset_ : 0;
    }
    const std::int64_t count = std::min(limit - send_offset_, kSendMax);
    if (count <= 0) return {};
    return slice.subspan(static_cast<std::size_t>(send_offset_), static_cast<std::size_t>(count));
  }

  void sent(std::int64_t bytes) final {
    send_offset_ += bytes;
    skip_empty(send_hop_, send_offset_, first_);
  }

 protected:
  /// The rest of the slice that is being received.
  std::span<char> incoming() const {
    return slice_at(first_ - 1 - receive_hop_).subspan(static_cast<std::size_t>(receive_offset_));
  }
  bool last_receive_hop() const { return receive_hop_ == last() - 1; }
  std::int64_t receive_offset() const { return receive_offset_; }
  /// The next `bytes` of incoming() are final and can be sent on.
  void advance(std::int64_t bytes) {
    receive_offset_ += bytes;
    skip_empty(receive_hop_, receive_offset_, first_ - 1);
  }

 private:
  int last() const { return static_cast<int>(slices_.size()) - 1; }
  std::span<char> slice_at(int index) const {
    const int world = static_cast<int>(slices_.size());
    return slices_[static_cast<std::size_t>(((index % world) + world) % world)];
  }
  void skip_empty(int& hop, std::int64_t& offset, int first) const {
    while (hop < last() && offset == static_cast<std::int64_t>(slice_at(first - hop).size())) {
      ++hop;
      offset = 0;
    }
  }

  const Slices slices_;
  const int first_;
  int send_hop_ = 0;
  std::int64_t send_offset_ = 0;
  int receive_hop_ = 0;
  std::int64_t receive_offset_ = 0;
};

class GatherFlow final : public Hops {
 public:
  GatherFlow(Slices slices, int rank) : Hops(std::move(slices), rank) {}
  std::span<char> receivable() override { return incoming(); }
  void received(std::int64_t bytes) override { advance(bytes); }
};

class ReduceFlow final : public Hops {
 public:
  /// The last hop writes its sums to `out`, which may be slice `rank` itself.
  ReduceFlow(Slices slices, int rank, char* out, at::ScalarType dtype, Op op,
             std::span<char> scratch)
      : Hops(std::move(slices), rank - 1),
        out_(out),
        dtype_(dtype),
        op_(op),
        size_(static_cast<std::int64_t>(c10::elementSize(dtype))),
        scratch_(scratch) {}

  std::span<char> receivable() override {
    const std::size_t wanted = std::min(scratch_.size(), incoming().size());
    return scratch_.subspan(fill_, wanted - fill_);
  }

  void received(std::int64_t bytes) override {
    fill_ += static_cast<std::size_t>(bytes);
    const std::int64_t elements = static_cast<std::int64_t>(fill_) / size_;
    if (elements == 0) return;
    char* mine = incoming().data();
    char* target = last_receive_hop() ? out_ + receive_offset() : mine;
    const void* sources[] = {scratch_.data(), mine};
    comm::reduce(target, sources, elements, dtype_, op_);
    const auto used = static_cast<std::size_t>(elements * size_);
    fill_ -= used;
    std::memmove(scratch_.data(), scratch_.data() + used, fill_);  // part of an element may remain
    advance(elements * size_);
  }

 private:
  char* const out_;
  const at::ScalarType dtype_;
  const Op op_;
  const std::int64_t size_;
  const std::span<char> scratch_;
  std::size_t fill_ = 0;
};

/// From the root along the ring. The rank before the root sends nothing.
class BroadcastFlow final : public Flow {
 public:
  BroadcastFlow(std::span<char> data, int rank, int world, int root) : data_(data) {
    const int distance = (rank - root + world) % world;
    if (distance == 0) received_ = data_.size();
    if (distance == world - 1) sent_ = data_.size();
  }
  bool send_done() const override { return sent_ == data_.size(); }
  bool receive_done() const override { return received_ == data_.size(); }
  std::span<const char> sendable() const override {
    if (sent_ >= received_) return {};
    return data_.subspan(sent_, std::min(received_ - sent_, static_cast<std::size_t>(kSendMax)));
  }
  void sent(std::int64_t bytes) override { sent_ += static_cast<std::size_t>(bytes); }
  std::span<char> receivable() override { return data_.subspan(received_); }
  void received(std::int64_t bytes) override { received_ += static_cast<std::size_t>(bytes); }

 private:
  const std::span<char> data_;
  std::size_t sent_ = 0;
  std::size_t received_ = 0;
};

/// Sends some bytes to the next rank and receives as many from the previous.
class HandOnFlow final : public Flow {
 public:
  HandOnFlow(std::span<const char> out, std::span<char> in) : out_(out), in_(in) {}
  bool send_done() const override { return out_.empty(); }
  bool receive_done() const override { return in_.empty(); }
  std::span<const char> sendable() const override {
    return out_.first(std::min(out_.size(), static_cast<std::size_t>(kSendMax)));
  }
  void sent(std::int64_t bytes) override { out_ = out_.subspan(static_cast<std::size_t>(bytes)); }
  std::span<char> receivable() override { return in_; }
  void received(std::int64_t bytes) override { in_ = in_.subspan(static_cast<std::size_t>(bytes)); }

 private:
  std::span<const char> out_;
  std::span<char> in_;
};

/// Sends a Frame to the next rank and receives one from the previous.
class FrameFlow final : public Flow {
 public:
  explicit FrameFlow(const Frame& frame) : mine(frame) {}
  bool send_done() const override { return sent_ == sizeof(Frame); }
  bool receive_done() const override { return received_ == sizeof(Frame); }
  std::span<const char> sendable() const override {
    return std::span(reinterpret_cast<const char*>(&mine), sizeof mine).subspan(sent_);
  }
  void sent(std::int64_t bytes) override { sent_ += static_cast<std::size_t>(bytes); }
  std::span<char> receivable() override {
    return std::span(reinterpret_cast<char*>(&theirs), sizeof theirs).subspan(received_);
  }
  void received(std::int64_t bytes) override { received_ += static_cast<std::size_t>(bytes); }

  const Frame mine;
  Frame theirs;

 private:
  std::size_t sent_ = 0;
  std::size_t received_ = 0;
};

class Ring final : public SliceTransport {
 public:
  Ring(RingLinks links, Fd wake, const Rendezvous& rendezvous)
      : SliceTransport(rendezvous.options().world),
        links_(std::move(links)),
        wake_(std::move(wake)),
        rank_(rendezvous.options().rank),
        world_(rendezvous.options().world),
        previous_name_(rendezvous.name(previous())),
        next_name_(rendezvous.name(next())) {}

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
    if (left <= 0) {
      const int rank = flow.receive_done() ? next_name_ : previous_name_;
      throw TransportTimeout("waiting for rank " + std::to_string(rank));
    }
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
