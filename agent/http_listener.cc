#include "agent/http_listener.h"

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <list>
#include <thread>

namespace dsj::agent {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using Problem = boost::system::error_code;

/// After a refusal the peer may still be sending: so much of it is thrown away, so long, so that
/// it gets to read the answer.
constexpr size_t kDrainBytes = 64 * 1024;
constexpr Time kDrainTime{1000};

std::string text(beast::string_view view) {
  return std::string(view.data(), view.size());
}

class Connection;
/// What all connections of a listener share; used on its thread only.
struct Shared {
  HttpLimits limits;
  std::shared_ptr<HttpHandler> handler;
  std::list<std::weak_ptr<Connection>> open;  ///< oldest first
  std::atomic<int>& count;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, std::shared_ptr<Shared> shared)
      : stream_(std::move(socket)), shared_(std::move(shared)) {
    ++shared_->count;
  }
  ~Connection() { --shared_->count; }

  void read_head() {
    head_.emplace();
    head_->header_limit(static_cast<uint32_t>(shared_->limits.head_bytes));
    head_->body_limit(UINT64_MAX);  // judged below, after the caller is
    buffer_.max_size(shared_->limits.head_bytes + shared_->limits.body_bytes);
    stream_.expires_after(admitted_ ? shared_->limits.idle : shared_->limits.head);
    http::async_read_header(
        stream_, buffer_, *head_, [self = shared_from_this()](Problem problem, size_t) {
          if (!problem) return self->judge();
          if (problem == http::error::header_limit || problem == http::error::buffer_overflow) {
            self->refuse({431, "the head is too large"});
          } else if (problem.category() == make_error_code(http::error::bad_method).category() &&
                     problem != http::error::end_of_stream &&
                     problem != http::error::partial_message) {
            self->refuse({400, "not HTTP"});
          }
        });
  }
  bool admitted() const { return admitted_; }
  void end() { stream_.close(); }

 private:
  void judge() {
    const auto& message = head_->get();
    request_ = {.method = text(message.method_string()),
                .path = text(message.target()),
                .authorization = text(message[http::field::authorization])};
    stream_.expires_after(shared_->limits.request);
    if (auto answer = shared_->handler->refuse(request_)) return refuse(std::move(*answer));
    const bool may_have_body = message.method() != http::verb::get;
    const auto length = head_->content_length();
    if (head_->chunked() || (may_have_body && !length)) {
      return refuse({411, "a body needs its length"});
    }
    if (length && *length > shared_->limits.body_bytes)
      return refuse({413, "the body is too large"});
    admitted_ = true;
    body_.emplace(std::move(*head_));
    body_->body_limit(shared_->limits.body_bytes);
    http::async_read(stream_, buffer_, *body_,
                     [self = shared_from_this()](Problem problem, size_t) {
                       if (!problem) self->respond();
                     });
  }

  void respond() {
    const bool keep = body_->get().keep_alive();
    send(shared_->handler->answer(request_, body_->get().body()), keep);
  }

  void refuse(HttpAnswer answer) {
    stream_.expires_after(shared_->limits.request);
    send(std::move(answer), false);
  }

  void send(HttpAnswer answer, bool keep) {
    answer_.emplace();
    answer_->version(11);
    answer_->result(static_cast<unsigned>(answer.status));
    answer_->set(http::field::content_type, answer.content_type);
    answer_->keep_alive(keep);
    answer_->body() = std::move(answer.body);
    answer_->prepare_payload();
    http::async_write(stream_, *answer_,
                      [self = shared_from_this(), keep](Problem problem, size_t) {
                        if (problem) return;
                        if (keep) return self->read_head();
                        Problem ignored;
                        self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
                        self->stream_.expires_after(kDrainTime);
                        self->drain();
                      });
  }

  void drain() {
    stream_.async_read_some(asio::buffer(waste_),
                            [self = shared_from_this()](Problem problem, size_t got) {
                              self->drained_ += got;
                              if (!problem && self->drained_ < kDrainBytes) self->drain();
                            });
  }

  beast::tcp_stream stream_;
  std::shared_ptr<Shared> shared_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> head_;
  std::optional<http::request_parser<http::string_body>> body_;
  std::optional<http::response<http::string_body>> answer_;
  HttpHead request_;
  bool admitted_ = false;  ///< a request of it was admitted once
  size_t drained_ = 0;
  std::array<char, 4096> waste_{};
};

/// The oldest connection that was never admitted makes room; false: there is none.
bool make_room(Shared& shared) {
  for (const auto& entry : shared.open) {
    const auto connection = entry.lock();
    if (!connection || connection->admitted()) continue;
    connection->end();
    return true;
  }
  return false;
}

}  // namespace

struct HttpListener::State {
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::steady_timer pause{io};
  std::atomic<int> count = 0;
  std::shared_ptr<Shared> shared;
  std::thread thread;

  void accept();
  void take(tcp::socket socket);
};

void HttpListener::State::accept() {
  acceptor.async_accept([this](Problem problem, tcp::socket socket) {
    if (problem == asio::error::operation_aborted) return;
    if (problem) {  // out of descriptors, most likely: others must end first
      pause.expires_after(Time(100));
      pause.async_wait([this](Problem stopped) {
        if (!stopped) accept();
      });
      return;
    }
    take(std::move(socket));
    accept();
  });
}

void HttpListener::State::take(tcp::socket socket) {
  shared->open.remove_if([](const auto& entry) { return entry.expired(); });
  if (static_cast<int>(shared->open.size()) >= shared->limits.connections && !make_room(*shared)) {
    return;  // the socket closes
  }
  auto connection = std::make_shared<Connection>(std::move(socket), shared);
  shared->open.push_back(connection);
  connection->read_head();
}

Result<std::unique_ptr<HttpListener>> HttpListener::open(const std::string& address, int port,
                                                         HttpLimits limits,
                                                         std::shared_ptr<HttpHandler> handler) {
  auto state = std::make_unique<State>();
  state->shared = std::make_shared<Shared>(Shared{limits, std::move(handler), {}, state->count});
  try {
    const tcp::endpoint endpoint(asio::ip::make_address(address), static_cast<uint16_t>(port));
    state->acceptor.open(endpoint.protocol());
    state->acceptor.set_option(asio::socket_base::reuse_address(true));
    state->acceptor.bind(endpoint);
    state->acceptor.listen();
  } catch (const std::exception& error) {
    return fail(ErrorKind::Environment, std::string("cannot listen: ") + error.what(),
                address + ":" + std::to_string(port));
  }
  state->accept();
  state->thread = std::thread([own = state.get()] { own->io.run(); });
  return std::unique_ptr<HttpListener>(new HttpListener(std::move(state)));
}

HttpListener::HttpListener(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpListener::~HttpListener() {
  state_->io.stop();
  state_->thread.join();
}

int HttpListener::port() const {
  return state_->acceptor.local_endpoint().port();
}

int HttpListener::connections() const {
  return state_->count;
}

}  // namespace dsj::agent
