// One connection of an HttpListener, and their shared state. Only http_listener.cc includes it.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <list>

#include "common/http/beast.h"
#include "common/http/http_handler.h"

namespace dsj::http_listener {

using namespace beast_names;
using std::chrono::milliseconds;

/// After a refusal the peer may still be sending. This much is read and dropped, for this long, so
/// that the peer can read the answer.
inline constexpr size_t kDrainBytes = 64 * 1024;
inline constexpr milliseconds kDrainTime{1000};
/// First read of a hello; the handshake reads the rest.
inline constexpr size_t kHelloBytes = 2048;

inline std::string text(beast::string_view view) {
  return std::string(view.data(), view.size());
}

class Peer {
 public:
  virtual ~Peer() = default;
  bool idle() const { return idle_; }  ///< between two requests
  virtual void end() = 0;

 protected:
  bool idle_ = false;
};

class Guest;

/// Shared by all connections of a listener. Used only on its thread. A connection stores its own
/// position in the lists, so that the cost of a request is independent of the number of connections.
struct Shared {
  using Peers = std::list<Peer*>;
  HttpLimits limits;
  std::shared_ptr<HttpHandler> handler;
  TlsSource tls;
  HttpCounts& counts;
  asio::steady_timer& turn;  ///< until a slot at the door becomes free
  Doorway<std::shared_ptr<Guest>> door{limits.door};
  Peers strangers;  ///< peers without an admitted request; oldest first
  Peers known;      ///< least recently active first
  Peers ended;      ///< closed to make room; destroyed when their operations end

  /// Begins the handshakes that the door allows.
  void open_door();
};

/// A peer's position in the lists: at first among the strangers.
class Placed : public Peer {
 protected:
  explicit Placed(std::shared_ptr<Shared> shared)
      : shared_(std::move(shared)),
        list_(&shared_->strangers),
        place_(list_->insert(list_->end(), this)) {
    ++shared_->counts.open;
  }
  ~Placed() override {
    list_->erase(place_);
    --shared_->counts.open;
  }
  void move_to(Shared::Peers& list) {
    list.splice(list.end(), *list_, place_);
    list_ = &list;
  }

  const std::shared_ptr<Shared> shared_;

 private:
  Shared::Peers* list_;
  const Shared::Peers::iterator place_;
};

/// `Stream`: beast::tcp_stream, or TLS over it.
template <typename Stream>
class Connection final : public Placed, public std::enable_shared_from_this<Connection<Stream>> {
 public:
  Connection(std::shared_ptr<Shared> shared, std::shared_ptr<ssl::context> context, Stream stream)
      : Placed(std::move(shared)), context_(std::move(context)), stream_(std::move(stream)) {}

  void begin() {
    tcp_().expires_after(shared_->limits.head);
    read_head();
  }
  /// TLS only. `hello`: the bytes read so far. `ticket`: its ticket at the door.
  void shake_hands(std::string hello, int64_t ticket) {
    tcp_().expires_after(shared_->limits.head);
    answer_ = std::move(hello);
    stream_.async_handshake(ssl::stream_base::server, asio::buffer(answer_),
                            [self = this->shared_from_this(), ticket](Problem problem, size_t) {
                              self->shared_->counts.secured += !problem;
                              self->shared_->door.left(ticket);
                              if (!problem) self->read_head();
                              self->shared_->open_door();
                            });
  }
  void end() override {
    move_to(shared_->ended);
    tcp_().close();
  }

 private:
  beast::tcp_stream& tcp_() { return beast::get_lowest_layer(stream_); }

  void read_head() {
    head_.emplace();
    head_->header_limit(static_cast<uint32_t>(shared_->limits.head_bytes));
    head_->body_limit(UINT64_MAX);  // checked below, after the caller was authorized
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

  /// Keeps the connection open and frees the memory of the last request.
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
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::empty_body>> head_;
  std::optional<http::request_parser<http::string_body>> body_;
  std::string answer_;  ///< the response; during a handshake the hello
  HttpHead request_;
  size_t drained_ = 0;
  std::string waste_;
};

/// A peer of a TLS server before its handshake: it holds only its hello, a tenth of TLS's memory.
class Guest final : public Placed, public std::enable_shared_from_this<Guest> {
 public:
  Guest(std::shared_ptr<Shared> shared, beast::tcp_stream stream)
      : Placed(std::move(shared)), stream_(std::move(stream)) {}

  void begin() {
    Problem ignored;
    from_ = stream_.socket().remote_endpoint(ignored).address().to_string();
    hello_.resize(kHelloBytes);
    stream_.expires_after(shared_->limits.head);
    stream_.async_read_some(asio::buffer(hello_),
                            [self = shared_from_this()](Problem problem, size_t got) {
                              if (problem) return;
                              self->hello_.resize(got);
                              self->hello_.shrink_to_fit();
                              self->stream_.expires_never();
                              self->ticket_ = self->shared_->door.came(self, self->from_);
                              self->shared_->open_door();
                            });
  }

  void shake_hands() {
    const auto context = gone() ? nullptr : shared_->tls();
    if (!context) return shared_->door.left(ticket_);  // it left, or there is no certificate
    ++shared_->counts.handshakes;
    auto connection = std::make_shared<Connection<Secured>>(shared_, context,
                                                            Secured(std::move(stream_), *context));
    connection->shake_hands(std::move(hello_), ticket_);
  }

  void end() override {
    const auto self = shared_from_this();  // the door releases it
    move_to(shared_->ended);
    shared_->door.left(ticket_);
    stream_.close();
  }

 private:
  /// Whether the peer has closed the connection while it waited.
  bool gone() {
    char byte;
    const auto got = ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    const bool gone = got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK);
    shared_->counts.gone += gone;
    return gone;
  }

  beast::tcp_stream stream_;
  std::string from_, hello_;
  int64_t ticket_ = 0;  ///< 0 before its hello
};

inline void Shared::open_door() {
  const auto now =
      std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now().time_since_epoch());
  while (const auto next = door.next(now)) next->second->shake_hands();
  if (const auto opens = door.opens()) {
    turn.expires_at(std::chrono::steady_clock::time_point(*opens));
    turn.async_wait([this](Problem stopped) {
      if (!stopped) open_door();
    });
  }
}

}  // namespace dsj::http_listener
