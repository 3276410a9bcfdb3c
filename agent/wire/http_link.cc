#include "agent/wire/http_link.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/strand.hpp>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/http/beast.h"

namespace dsj::agent {
namespace {

using namespace beast_names;

int link_threads = 2;

/// A name look-up may take this many times an answer's timeout: one whose first packet was lost
/// takes 5 s.
constexpr int kNaming = 10;

/// Threads and io_context of all links, which may be in the middle of a request when their owners
/// are destroyed. The threads end at process exit, before OpenSSL, which they may be using;
/// requests in flight get no callback. The context is never destroyed, because that would wait for
/// all name look-ups in progress.
struct Pool {
  asio::io_context& io = *new asio::io_context(link_threads);
  asio::executor_work_guard<asio::io_context::executor_type> work = asio::make_work_guard(io);
  std::vector<std::thread> threads;

  Pool() {
    OPENSSL_init_ssl(0, nullptr);  // initialized first, so destroyed last
    for (int i = 0; i < link_threads; ++i) threads.emplace_back([this] { io.run(); });
  }
  ~Pool() {
    io.stop();
    for (auto& thread : threads) thread.join();
  }
};

asio::io_context& io() {
  static Pool pool;
  return pool.io;
}

/// `Stream` is beast::tcp_stream, or TLS over it.
template <typename Stream>
class Link final : public HttpLink, public std::enable_shared_from_this<Link<Stream>> {
 public:
  Link(std::string host, int port, std::shared_ptr<ssl::context> context, Stream stream)
      : host_(std::move(host)),
        port_(port),
        context_(std::move(context)),
        stream_(std::move(stream)),
        resolver_(stream_.get_executor()),
        naming_ends_(stream_.get_executor()) {}

  void ask(std::string wire, size_t body_most, std::chrono::milliseconds timeout,
           std::function<void(Asked)> done) override {
    asio::post(stream_.get_executor(), [self = this->shared_from_this(), wire = std::move(wire),
                                        body_most, timeout, done = std::move(done)]() mutable {
      self->wire_ = std::move(wire);
      self->body_most_ = body_most;
      self->timeout_ = timeout;
      self->done_ = std::move(done);
      if (!self->connected_) return self->resolve();
      self->tcp_().expires_after(timeout);
      self->write();
    });
  }

 private:
  beast::tcp_stream& tcp_() { return beast::get_lowest_layer(stream_); }

  /// The system's look-up has no deadline: its answer may come after the timeout.
  void resolve() {
    naming_ = true;
    naming_ends_.expires_after(kNaming * timeout_);
    naming_ends_.async_wait([self = this->shared_from_this()](Problem stopped) {
      if (stopped || !std::exchange(self->naming_, false)) return;
      self->fail("the name was not found in time", asio::error::timed_out);
    });
    resolver_.async_resolve(
        host_, std::to_string(port_),
        [self = this->shared_from_this()](Problem problem, tcp::resolver::results_type found) {
          if (!std::exchange(self->naming_, false)) return;
          self->naming_ends_.cancel();
          if (problem) return self->fail("the name is not known", problem);
          self->connect(found);
        });
  }

  void connect(const tcp::resolver::results_type& found) {
    tcp_().expires_after(timeout_);
    tcp_().async_connect(found, [self = this->shared_from_this()](Problem problem, const auto&) {
      if (problem) return self->fail("no connection", problem);
      self->connected_ = true;
      Problem ignored;
      self->tcp_().socket().set_option(tcp::no_delay(true), ignored);
      if constexpr (std::is_same_v<Stream, Secured>) {
        self->shake_hands();
      } else {
        self->write();
      }
    });
  }

  void shake_hands() {
    stream_.async_handshake(ssl::stream_base::client,
                            [self = this->shared_from_this()](Problem problem) {
                              if (!problem) return self->write();
                              self->fail("the TLS handshake failed", problem, true);
                            });
  }

  void write() {
    asio::async_write(stream_, asio::buffer(wire_),
                      [self = this->shared_from_this()](Problem problem, size_t) {
                        if (problem) return self->fail("the request was not taken", problem);
                        self->read();
                      });
  }

  void read() {
    answer_.emplace();
    answer_->body_limit(body_most_);
    http::async_read(stream_, buffer_, *answer_,
                     [self = this->shared_from_this()](Problem problem, size_t) {
                       if (problem) return self->fail("no answer", problem);
                       self->tcp_().expires_never();
                       auto& answer = self->answer_->get();
                       self->tell({.status = static_cast<int>(answer.result_int()),
                                   .body = std::move(answer.body()),
                                   .kept = answer.keep_alive()});
                     });
  }

  void fail(const std::string& what, Problem problem, bool handshake = false) {
    const bool in_time = problem != beast::error::timeout;
    tell({.problem = what + ": " + problem.message(),
          .handshake_failed = handshake && in_time,
          .late = connected_ && !in_time});
  }
  void tell(Asked asked) { std::exchange(done_, nullptr)(std::move(asked)); }

  const std::string host_;
  const int port_;
  const std::shared_ptr<ssl::context> context_;  ///< outlives the stream
  Stream stream_;
  tcp::resolver resolver_;
  asio::steady_timer naming_ends_;
  bool naming_ = false;  ///< a name look-up is in progress and not timed out
  beast::flat_buffer buffer_;
  bool connected_ = false;
  std::string wire_;
  size_t body_most_ = 0;
  std::chrono::milliseconds timeout_{0};
  std::function<void(Asked)> done_;
  std::optional<http::response_parser<http::string_body>> answer_;
};

}  // namespace

std::shared_ptr<HttpLink> HttpLink::make(const std::string& host, int port,
                                         std::shared_ptr<ssl::context> tls) {
  beast::tcp_stream plain(asio::make_strand(io()));
  if (!tls) {
    return std::make_shared<Link<beast::tcp_stream>>(host, port, nullptr, std::move(plain));
  }
  Secured secured(std::move(plain), *tls);
  return std::make_shared<Link<Secured>>(host, port, std::move(tls), std::move(secured));
}

void set_link_threads(int threads) {
  link_threads = threads;
}

}  // namespace dsj::agent
