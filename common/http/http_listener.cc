#include "common/http/http_listener.h"

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <charconv>
#include <list>
#include <thread>

namespace dsj {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
namespace ssl = boost::asio::ssl;
using tcp = asio::ip::tcp;
using Problem = boost::system::error_code;
using std::chrono::milliseconds;

/// After a refusal the peer may still be sending. This much is read and dropped, for so long, so
/// that it gets to read the answer.
constexpr size_t kDrainBytes = 64 * 1024;
constexpr milliseconds kDrainTime{1000};

std::string text(beast::string_view view) {
  return std::string(view.data(), view.size());
}

/// The answer as it goes over the wire. One string, because http::async_write() takes seconds to
/// compile for each kind of stream.
std::string wire_text(const http::response<http::string_body>& answer) {
  std::string wire;
  http::serializer<false, http::string_body> parts(answer);
  for (Problem problem; !problem && !parts.is_done();) {
    parts.next(problem, [&](Problem&, const auto& buffers) {
      wire += beast::buffers_to_string(buffers);
      parts.consume(beast::buffer_bytes(buffers));
    });
  }
  return wire;
}

class Peer {
 public:
  virtual ~Peer() = default;
  bool idle() const { return idle_; }  ///< between two requests
  virtual void end() = 0;

 protected:
  bool idle_ = false;
};

/// Shared by all connections of a listener. Used on its thread only. A connection knows its own place in
/// the lists, so that a request costs the same however many others are open.
struct Shared {
  using Peers = std::list<Peer*>;
  HttpLimits limits;
  std::shared_ptr<HttpHandler> handler;
  TlsSource tls;
  Peers strangers;  ///< none of their requests was admitted; oldest first
  Peers known;      ///< least recently heard first
  Peers ended;      ///< they made room, and go as soon as their operations have
  std::atomic<int>& count;
  std::atomic<int64_t>& looked_at;
};

/// `Stream`: beast::tcp_stream, or TLS over it.
template <typename Stream>
class Connection final : public Peer, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  Connection(std::shared_ptr<Shared> shared, std::shared_ptr<ssl::context> context, Stream stream)
      : context_(std::move(context)),
        stream_(std::move(stream)),
        shared_(std::move(shared)),
        list_(&shared_->strangers),
        place_(list_->insert(list_->end(), this)) {
    ++shared_->count;
  }
  ~Connection() override {
    list_->erase(place_);
    --shared_->count;
  }

  void begin() {
    tcp_().expires_after(shared_->limits.head);
    if constexpr (std::is_same_v<Stream, beast::tcp_stream>) {
      read_head();
    } else {
      stream_.async_handshake(ssl::stream_base::server,
                              [self = this->shared_from_this()](Problem problem) {
                                if (!problem) self->read_head();
                              });
    }
  }
  void end() override {
    move_to(shared_->ended);
    tcp_().close();
  }

 private:
  beast::tcp_stream& tcp_() { return beast::get_lowest_layer(stream_); }
  void move_to(Shared::Peers& list) {
    list.splice(list.end(), *list_, place_);
    list_ = &list;
  }

  void read_head() {
    head_.emplace();
    head_->header_limit(static_cast<uint32_t>(shared_->limits.head_bytes));
    head_->body_limit(UINT64_MAX);  // judged below, after the caller has been
    buffer_.max_size(shared_->limits.head_bytes + shared_->limits.body_bytes);
    http::async_read_header(
        stream_, buffer_, *head_, [self = this->shared_from_this()](Problem problem, size_t) {
          self->idle_ = false;
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

  void judge() {
    const auto& message = head_->get();
    request_ = {.method = text(message.method_string()),
                .path = text(message.target()),
                .authorization = text(message[http::field::authorization])};
    tcp_().expires_after(shared_->limits.request);
    if (auto answer = shared_->handler->refuse(request_)) return refuse(std::move(*answer));
    const bool may_have_body = message.method() != http::verb::get;
    const auto length = head_->content_length();
    if (head_->chunked() || (may_have_body && !length)) {
      return refuse({411, "a body needs its length"});
    }
    if (length && *length > shared_->limits.body_bytes)
      return refuse({413, "the body is too large"});
    move_to(shared_->known);
    body_.emplace(std::move(*head_));
    body_->body_limit(shared_->limits.body_bytes);
    http::async_read(stream_, buffer_, *body_,
                     [self = this->shared_from_this()](Problem problem, size_t) {
                       if (!problem) self->respond();
                     });
  }

  void respond() {
    const bool keep = body_->get().keep_alive();
    send(shared_->handler->answer(request_, body_->get().body()), keep);
  }

  void refuse(HttpAnswer answer) {
    tcp_().expires_after(shared_->limits.request);
    send(std::move(answer), false);
  }

  void send(HttpAnswer answer, bool keep) {
    http::response<http::string_body> message;
    message.version(11);
    message.result(static_cast<unsigned>(answer.status));
    message.set(http::field::content_type, answer.content_type);
    message.keep_alive(keep);
    message.body() = std::move(answer.body);
    message.prepare_payload();
    answer_ = wire_text(message);
    asio::async_write(stream_, asio::buffer(answer_),
                      [self = this->shared_from_this(), keep](Problem problem, size_t) {
                        if (problem) return;
                        if (keep) return self->rest();
                        Problem ignored;
                        self->tcp_().socket().shutdown(tcp::socket::shutdown_send, ignored);
                        self->tcp_().expires_after(kDrainTime);
                        self->drain();
                      });
  }

  /// Keeps the connection and drops what the last request held.
  void rest() {
    body_.reset();
    answer_ = {};
    if (buffer_.size() == 0) buffer_.shrink_to_fit();
    idle_ = true;
    tcp_().expires_after(shared_->limits.idle);
    read_head();
  }

  void drain() {
    waste_.resize(4096);  // most connections never need it
    tcp_().async_read_some(asio::buffer(waste_),
                           [self = this->shared_from_this()](Problem problem, size_t got) {
                             self->drained_ += got;
                             if (!problem && self->drained_ < kDrainBytes) self->drain();
                           });
  }

  const std::shared_ptr<ssl::context> context_;  ///< outlives the stream
  Stream stream_;
  std::shared_ptr<Shared> shared_;
  Shared::Peers* list_;
  const Shared::Peers::iterator place_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> head_;
  std::optional<http::request_parser<http::string_body>> body_;
  std::string answer_;  ///< what is sent
  HttpHead request_;
  size_t drained_ = 0;
  std::string waste_;
};

/// Ends one connection. False: every peer is in the middle of a request.
bool make_room(Shared& shared) {
  const auto ends = [&](Peer* peer) {
    ++shared.looked_at;
    peer->end();
    return true;
  };
  if (!shared.strangers.empty()) return ends(shared.strangers.front());
  for (Peer* peer : shared.known) {
    if (peer->idle()) return ends(peer);
    ++shared.looked_at;
  }
  return false;
}

}  // namespace

struct HttpListener::State {
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::steady_timer pause{io};
  std::atomic<int> count = 0;
  std::atomic<int64_t> looked_at = 0;
  std::shared_ptr<Shared> shared;
  std::thread thread;

  void accept();
  void take(tcp::socket socket);
  template <typename Stream>
  void begin(std::shared_ptr<ssl::context> context, Stream stream);
};

void HttpListener::State::accept() {
  acceptor.async_accept([this](Problem problem, tcp::socket socket) {
    if (problem == asio::error::operation_aborted) return;
    if (problem) {  // most likely out of descriptors: wait until others end
      pause.expires_after(milliseconds(100));
      pause.async_wait([this](Problem stopped) {
        if (!stopped) accept();
      });
      return;
    }
    take(std::move(socket));
    accept();
  });
}

template <typename Stream>
void HttpListener::State::begin(std::shared_ptr<ssl::context> context, Stream stream) {
  auto connection =
      std::make_shared<Connection<Stream>>(shared, std::move(context), std::move(stream));
  connection->begin();
}

void HttpListener::State::take(tcp::socket socket) {
  const size_t open = shared->strangers.size() + shared->known.size();
  if (open >= static_cast<size_t>(shared->limits.connections) && !make_room(*shared)) {
    return;  // closes the socket
  }
  Problem ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  beast::tcp_stream stream(std::move(socket));
  if (!shared->tls) return begin<beast::tcp_stream>(nullptr, std::move(stream));
  auto context = shared->tls();
  if (!context) return;  // no certificate yet
  ssl::stream<beast::tcp_stream> secured(std::move(stream), *context);
  begin(std::move(context), std::move(secured));
}

Result<std::shared_ptr<ssl::context>> server_tls(const std::string& chain_pem,
                                                 const std::string& key_pem) {
  try {
    auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
    context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 |
                         ssl::context::no_sslv3 | ssl::context::no_tlsv1 |
                         ssl::context::no_tlsv1_1 | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET);
    SSL_CTX_set_session_cache_mode(context->native_handle(), SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context->native_handle(), SSL_MODE_RELEASE_BUFFERS);  // of idle connections
    context->use_certificate_chain(asio::buffer(chain_pem));
    context->use_private_key(asio::buffer(key_pem), ssl::context::pem);
    return context;
  } catch (const std::exception& error) {
    return fail(ErrorKind::Internal, std::string("OpenSSL does not take a key: ") + error.what());
  }
}

Result<std::unique_ptr<HttpListener>> HttpListener::open(const std::string& address, int port,
                                                         HttpLimits limits,
                                                         std::shared_ptr<HttpHandler> handler,
                                                         TlsSource tls) {
  auto state = std::make_unique<State>();
  state->shared = std::make_shared<Shared>(Shared{
      limits, std::move(handler), std::move(tls), {}, {}, {}, state->count, state->looked_at});
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

Result<std::unique_ptr<HttpListener>> HttpListener::open(const std::string& address_and_port,
                                                         HttpLimits limits,
                                                         std::shared_ptr<HttpHandler> handler,
                                                         TlsSource tls) {
  const size_t colon = address_and_port.rfind(':');
  std::string address = address_and_port.substr(0, colon);
  if (address.starts_with('[') && address.ends_with(']')) {
    address = address.substr(1, address.size() - 2);
  }
  int port = -1;
  if (colon != std::string::npos) {
    const char* end = address_and_port.data() + address_and_port.size();
    const auto read = std::from_chars(address_and_port.data() + colon + 1, end, port);
    if (read.ptr != end || port > 65'535) port = -1;
  }
  if (port < 0) {
    return bad_input("found \"" + address_and_port + "\", expected ADDRESS:PORT", "",
                     "0.0.0.0:29402");
  }
  return open(address, port, limits, std::move(handler), std::move(tls));
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

int64_t HttpListener::looked_at() const {
  return state_->looked_at;
}

}  // namespace dsj
