#include "agent/links/link_meter.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>
#include <charconv>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "agent/join/join_gate.h"
#include "agent/wire/wake.h"
#include "common/format.h"
#include "common/random_hex.h"

namespace dsj::agent {
namespace {

constexpr size_t kSlicesFew = 8;

int64_t bytes_per_second(int64_t bytes, int64_t microseconds) {
  const double seconds = static_cast<double>(std::max<int64_t>(1, microseconds)) * 1e-6;
  return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(bytes) / seconds));
}

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using Problem = boost::system::error_code;
using SteadyClock = std::chrono::steady_clock;

constexpr size_t kKeyBytes = 16, kKeyDigits = 2 * kKeyBytes, kRateDigits = 16;
constexpr int64_t kSlice = 1 << 20;
/// Peers at once. In a ring it is one; the rest is for strangers, who are disconnected after a
/// while.
constexpr int kPeersMost = 8;
constexpr Time kGoodbye{1000}, kAcceptPause{100};
using Block = std::array<char, 256 << 10>;

/// Random bytes, so that a tunnel cannot compress them.
const Block& payload() {
  static const Block* block = [] {
    auto* made = new Block;
    std::minstd_rand random(1);
    for (char& byte : *made) byte = static_cast<char>(random() >> 8);
    return made;
  }();
  return *block;
}

int64_t microseconds(SteadyClock::duration time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

/// A timer whose handler is not called if it was set again meanwhile.
class Deadline {
 public:
  explicit Deadline(const asio::any_io_executor& executor) : timer_(executor) {}
  template <typename Late>
  void set(Time time, Late late) {
    timer_.expires_after(time);
    timer_.async_wait([this, late = std::move(late)](Problem stopped) {
      if (!stopped && timer_.expiry() <= SteadyClock::now()) late();
    });
  }
  void cancel() { timer_.cancel(); }

 private:
  asio::steady_timer timer_;
};

/// Receives from one peer.
class LinkReceiver : public std::enable_shared_from_this<LinkReceiver> {
 public:
  LinkReceiver(tcp::socket socket, const std::string& key, const LinkLimits& limits,
               std::atomic<int>& open)
      : socket_(std::move(socket)),
        deadline_(socket_.get_executor()),
        key_(key),
        limits_(limits),
        open_(open),
        transfer_{.slice_bytes = kSlice} {
    ++open_;
  }
  ~LinkReceiver() { --open_; }
  asio::any_io_executor executor() { return socket_.get_executor(); }

  void begin() {
    deadline_.set(limits_.sending, [self = shared_from_this()] { self->end(); });
    asio::async_read(socket_, asio::buffer(block_, kKeyDigits),
                     [self = shared_from_this()](Problem problem, size_t bytes) {
                       const std::string_view shown(self->block_.data(), bytes);
                       if (problem || !same_key(shown, self->key_)) return self->end();
                       self->read();
                     });
  }

 private:
  void read() {
    socket_.async_read_some(
        asio::buffer(block_), [self = shared_from_this()](Problem problem, size_t bytes) {
          if (problem) return self->end();
          if (!self->answered_) self->take(static_cast<int64_t>(bytes), SteadyClock::now());
          self->read();  // also after the answer: closing with unread data would lose the answer
        });
  }

  void take(int64_t bytes, SteadyClock::time_point now) {
    if (received_ == 0) {  // these bytes only start the clock
      began_ = slice_began_ = now;
      deadline_.set(limits_.receiving, [self = shared_from_this()] { self->answer(); });
    } else {
      transfer_.bytes += bytes;
      slice_ += bytes;
    }
    received_ += bytes;
    if (slice_ >= kSlice) {
      transfer_.slices.push_back(microseconds(now - slice_began_) * kSlice / slice_);
      slice_began_ = now;
      slice_ = 0;
    }
    if (received_ >= limits_.bytes) answer();
  }

  void answer() {
    if (std::exchange(answered_, true)) return;
    transfer_.microseconds = microseconds(SteadyClock::now() - began_);
    answer_ = text::format("%016llx", static_cast<unsigned long long>(rate_of(transfer_)));
    deadline_.set(kGoodbye, [self = shared_from_this()] { self->end(); });
    asio::async_write(socket_, asio::buffer(answer_), [self = shared_from_this()](Problem, size_t) {
      Problem ignored;
      self->socket_.shutdown(tcp::socket::shutdown_send, ignored);
    });
  }

  void end() {
    Problem ignored;
    deadline_.cancel();
    socket_.close(ignored);
  }

  tcp::socket socket_;
  Deadline deadline_;
  const std::string key_;
  const LinkLimits limits_;
  std::atomic<int>& open_;
  Block block_;
  int64_t received_ = 0, slice_ = 0;
  SteadyClock::time_point began_, slice_began_;
  Transfer transfer_;
  bool answered_ = false;
  std::string answer_;
};

/// Carries out one order.
class LinkSender : public std::enable_shared_from_this<LinkSender> {
 public:
  LinkSender(const asio::any_io_executor& executor, LinkOrder order, const LinkLimits& limits,
             std::function<void(LinkRate)> done)
      : socket_(executor),
        deadline_(executor),
        order_(std::move(order)),
        limits_(limits),
        done_(std::move(done)) {}

  void begin() {
    Problem problem;
    const auto address = asio::ip::make_address(order_.address, problem);
    if (problem) return fail("\"" + order_.address + "\" is not an address");
    deadline_.set(limits_.sending, [self = shared_from_this()] {
      self->fail(self->connected_ ? "no answer in time" : "no connection in time");
    });
    const tcp::endpoint peer(address, static_cast<uint16_t>(order_.port));
    socket_.async_connect(peer, [self = shared_from_this()](Problem refused) {
      if (refused) return self->fail("no connection: " + refused.message());
      self->connected_ = true;
      self->greet();
    });
  }

 private:
  void greet() {
    asio::async_write(socket_, asio::buffer(order_.key),
                      [self = shared_from_this()](Problem problem, size_t) {
                        if (problem) return self->fail("cannot send: " + problem.message());
                        self->read();
                        self->write();
                      });
  }

  void read() {
    asio::async_read(socket_, asio::buffer(answer_),
                     [self = shared_from_this()](Problem problem, size_t) {
                       if (problem) return self->fail("no answer: " + problem.message());
                       int64_t rate = 0;
                       const char* end = self->answer_.data() + self->answer_.size();
                       const auto parsed = std::from_chars(self->answer_.data(), end, rate, 16);
                       if (parsed.ptr != end || rate <= 0)
                         return self->fail("an answer without a rate");
                       self->tell({.round = self->order_.round, .bytes_per_second = rate});
                     });
  }

  /// A failed write needs no report: the answer will be missing.
  void write() {
    const int64_t left = std::min(limits_.bytes - sent_, static_cast<int64_t>(payload().size()));
    if (left <= 0) return;
    socket_.async_write_some(asio::buffer(payload(), static_cast<size_t>(left)),
                             [self = shared_from_this()](Problem problem, size_t bytes) {
                               if (problem) return;
                               self->sent_ += static_cast<int64_t>(bytes);
                               self->write();
                             });
  }

  void fail(const std::string& why) {
    tell({.round = order_.round, .problem = order_.address + ": " + why});
  }

  void tell(const LinkRate& rate) {
    if (!done_) return;
    Problem ignored;
    deadline_.cancel();
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);  // unsent data is useless
    socket_.close(ignored);
    std::exchange(done_, nullptr)(rate);
  }

  tcp::socket socket_;
  Deadline deadline_;
  const LinkOrder order_;
  const LinkLimits limits_;
  std::function<void(LinkRate)> done_;
  bool connected_ = false;
  int64_t sent_ = 0;
  std::array<char, kRateDigits> answer_{};
};

}  // namespace

int64_t rate_of(const Transfer& transfer) {
  if (transfer.slices.size() < kSlicesFew) {
    return bytes_per_second(transfer.bytes, transfer.microseconds);
  }
  std::vector<int64_t> slices = transfer.slices;
  const auto middle = slices.begin() + static_cast<std::ptrdiff_t>(slices.size() / 2);
  std::ranges::nth_element(slices, middle);
  return bytes_per_second(transfer.slice_bytes, *middle);
}

struct TcpLinkMeter::State {
  LinkLimits limits;
  LinkPlace place;
  Wake wake;
  std::mutex mutex;
  int64_t round = 0;             // round of the last order
  std::optional<LinkRate> rate;  // result of the last order
  std::atomic<int> open = 0;
  asio::io_context io{2};  // one thread receives while the other one sends
  tcp::acceptor acceptor{io};
  asio::steady_timer pause{io};
  std::vector<std::thread> threads;

  ~State() {
    io.stop();
    for (auto& thread : threads) thread.join();
  }
  void accept();
  void put(const LinkRate& told);
};

void TcpLinkMeter::State::accept() {
  const asio::any_io_executor strand = asio::make_strand(io);
  acceptor.async_accept(strand, [this](Problem problem, tcp::socket socket) {
    if (problem == asio::error::operation_aborted) return;
    if (problem) {  // most likely out of descriptors
      pause.expires_after(kAcceptPause);
      return pause.async_wait([this](Problem stopped) {
        if (!stopped) accept();
      });
    }
    if (open < kPeersMost) {
      const auto receiver =
          std::make_shared<LinkReceiver>(std::move(socket), place.key, limits, open);
      asio::post(receiver->executor(), [receiver] { receiver->begin(); });
    }
    accept();
  });
}

void TcpLinkMeter::State::put(const LinkRate& told) {
  const std::lock_guard lock(mutex);
  if (told.round != round) return;
  rate = told;
  wake.set();
}

Result<std::unique_ptr<TcpLinkMeter>> TcpLinkMeter::open(const std::string& address,
                                                         const std::string& node, bool moves,
                                                         const LinkLimits& limits) {
  auto state = std::make_unique<State>();
  state->limits = limits;
  DSJ_TRY(std::string key, random_hex(kKeyBytes));
  Problem problem;
  const auto at = asio::ip::make_address(address, problem);
  const tcp::endpoint endpoint(at, 0);
  tcp::acceptor& acceptor = state->acceptor;
  if (!problem) acceptor.open(endpoint.protocol(), problem);
  if (!problem) acceptor.bind(endpoint, problem);
  if (!problem) acceptor.listen(kPeersMost, problem);
  if (problem) {
    return fail(ErrorKind::Environment, "cannot listen for a peer: " + problem.message(), address);
  }
  state->place = {node, address, acceptor.local_endpoint().port(), std::move(key), moves};
  state->accept();
  for (int i = 0; i < 2; ++i) {
    state->threads.emplace_back([io = &state->io] { io->run(); });
  }
  return std::unique_ptr<TcpLinkMeter>(new TcpLinkMeter(std::move(state)));
}

TcpLinkMeter::TcpLinkMeter(std::unique_ptr<State> state) : state_(std::move(state)) {}

TcpLinkMeter::~TcpLinkMeter() = default;

LinkPlace TcpLinkMeter::place() const {
  return state_->place;
}

void TcpLinkMeter::send(const LinkOrder& order) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->round = order.round;
    state_->rate.reset();
  }
  const auto strand = asio::make_strand(state_->io);
  const auto sender = std::make_shared<LinkSender>(
      strand, order, state_->limits, [state = state_.get()](LinkRate rate) { state->put(rate); });
  asio::post(strand, [sender] { sender->begin(); });
}

std::optional<LinkRate> TcpLinkMeter::take() {
  state_->wake.clear();
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->rate, std::nullopt);
}

int TcpLinkMeter::ready_fd() const {
  return state_->wake.fd();
}

}  // namespace dsj::agent
