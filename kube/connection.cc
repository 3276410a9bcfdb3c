#include "kube/connection.h"

#include <boost/asio/read.hpp>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "common/http/beast.h"
#include "common/net_address.h"

namespace dsj::kube {
namespace {

using namespace beast_names;

constexpr uint32_t kHeadBytesMax = 64 << 10;

/// For failures of an established connection: a request may have been carried out.
NetError net_error(const Problem& problem) {
  if (problem.category() == asio::error::get_ssl_category()) {
    return {NetError::Kind::Tls, "TLS: " + problem.message()};
  }
  if (problem == http::error::body_limit) {
    return {NetError::Kind::Cut, "the answer is too long"};
  }
  return {NetError::Kind::Cut, "the connection ended: " + problem.message()};
}

/// The target of a connection: the server, or the proxy before it.
struct Hop {
  std::string host, port;
  std::string name;  ///< for messages
};

std::string place_of(const Endpoint& endpoint) {
  return url_host(endpoint.host) + ":" + endpoint.port;
}

Hop first_hop(const Endpoint& endpoint) {
  if (endpoint.proxy) return {endpoint.proxy->host, endpoint.proxy->port, endpoint.proxy->name()};
  return {endpoint.host, endpoint.port, place_of(endpoint)};
}

NetError connect_error(const Problem& problem, const std::string& name) {
  const std::string where = name + ": ";
  if (problem.category() == asio::error::get_ssl_category()) {
    return {NetError::Kind::Tls, where + "TLS: " + problem.message()};
  }
  return {NetError::Kind::Connect, where + problem.message()};
}

NetError cancelled() {
  return {NetError::Kind::Cancelled, "cancelled"};
}

std::string wire_text(const WireRequest& request) {
  http::request<http::string_body> message;
  message.version(11);
  message.method_string(request.method);
  message.target(request.target);
  for (const auto& [name, value] : request.headers) message.insert(name, value);
  message.body() = request.body;
  message.prepare_payload();
  return beast_names::wire_text(message);
}

template <typename Message>
Response head_of(const Message& message) {
  Response response{.status = static_cast<int>(message.result_int())};
  for (const auto& field : message) {
    std::string name(field.name_string().data(), field.name_string().size());
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    response.headers[name] = std::string(field.value().data(), field.value().size());
  }
  return response;
}

/// The system's name lookup, which has no deadline. It runs on its own thread, which is abandoned
/// if the caller stops waiting; so it owns only this.
struct Lookup {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false, cancelled = false;
  Problem problem;
  tcp::resolver::results_type found;
};

Connection::Expected<tcp::resolver::results_type> look_up(const Hop& hop, Connection::Time deadline,
                                                          const Cancel& cancel) {
  asio::io_context here;
  Problem no_number;
  const auto number =
      tcp::resolver(here).resolve(hop.host, hop.port, tcp::resolver::numeric_host, no_number);
  if (!no_number) return number;
  const auto lookup = std::make_shared<Lookup>();
  std::thread([lookup, host = hop.host, port = hop.port] {
    asio::io_context there;
    Problem problem;
    auto found = tcp::resolver(there).resolve(host, port, problem);
    const std::lock_guard lock(lookup->mutex);
    lookup->found = std::move(found);
    lookup->problem = problem;
    lookup->done = true;
    lookup->changed.notify_all();
  }).detach();
  const auto wake = cancel.on_cancel([lookup] {
    const std::lock_guard lock(lookup->mutex);
    lookup->cancelled = true;
    lookup->changed.notify_all();
  });
  std::unique_lock lock(lookup->mutex);
  lookup->changed.wait_until(lock, deadline, [&] { return lookup->done || lookup->cancelled; });
  if (lookup->cancelled) return std::unexpected(cancelled());
  if (!lookup->done) {
    return std::unexpected(
        NetError{NetError::Kind::Connect, hop.name + ": its address was not found in time"});
  }
  if (lookup->problem) return std::unexpected(connect_error(lookup->problem, hop.name));
  return lookup->found;
}

class BeastConnection final : public Connection,
                              public std::enable_shared_from_this<BeastConnection> {
 public:
  BeastConnection(const Endpoint& endpoint, std::shared_ptr<ssl::context> context)
      : endpoint_(endpoint), context_(std::move(context)) {}

  Expected<void> connect(Time deadline, const Cancel& cancel) override;
  Expected<Response> exchange(const WireRequest& request, size_t body_max, Time deadline,
                              const Cancel& cancel) override;
  Expected<Response> begin(const WireRequest& request, size_t body_max, Time deadline,
                           const Cancel& cancel) override;
  Expected<bool> read_some(std::string& out, Time deadline, const Cancel& cancel) override;
  bool usable() override;

 private:
  using Tcp = beast::tcp_stream;
  using Tls = ssl::stream<Tcp&>;
  using InnerTls = ssl::stream<Tls&>;

  /// Calls f with the stream that carries requests.
  template <typename F>
  void on_stream(F&& f) {
    if (inner_tls_) {
      f(*inner_tls_);
    } else if (tls_) {
      f(*tls_);
    } else {
      f(tcp_);
    }
  }
  /// Runs until the pending operation ends. After a Timeout it stays in flight.
  Expected<void> wait(Time deadline, const Cancel& cancel);
  /// The handler of an operation: stores the result for wait().
  auto finish();
  Expected<void> complete(Time deadline, const Cancel& cancel);
  Expected<void> send(const WireRequest& request, Time deadline, const Cancel& cancel);
  /// Waits for one operation of connect(); `name` is the peer.
  Expected<void> step(const std::string& name, Time deadline, const Cancel& cancel);
  template <typename Stream>
  Expected<void> handshake(Stream& stream, const std::string& host, const std::string& name,
                           Time deadline, const Cancel& cancel);
  Expected<void> write(const std::string& wire, Time deadline, const Cancel& cancel);
  Expected<std::string> read_exactly(size_t size, Time deadline, const Cancel& cancel);
  /// Asks the proxy to connect to the server.
  Expected<void> tunnel(Time deadline, const Cancel& cancel);
  Expected<void> socks(Time deadline, const Cancel& cancel);

  const Endpoint endpoint_;
  const std::shared_ptr<ssl::context> context_;
  asio::io_context io_{1};
  Tcp tcp_{io_};
  std::optional<Tls> tls_;             ///< to an HTTPS proxy, else to the server
  std::optional<InnerTls> inner_tls_;  ///< to the server, inside the proxy's TLS
  beast::flat_buffer buffer_;
  bool pending_ = false;
  Problem problem_;
  std::optional<http::response_parser<http::buffer_body>> stream_;
  std::array<char, 16 << 10> chunk_;
  bool reading_ = false;  ///< a read into chunk_ is in flight
  bool keep_ = false;
};

}  // namespace

std::optional<Endpoint> parse_endpoint(const std::string& server) {
  Endpoint endpoint;
  endpoint.tls = server.starts_with("https://");
  if (!endpoint.tls && !server.starts_with("http://")) return std::nullopt;
  std::string rest = server.substr(endpoint.tls ? 8 : 7);
  if (const size_t slash = rest.find('/'); slash != std::string::npos) {
    endpoint.path = rest.substr(slash);
    while (endpoint.path.ends_with('/')) endpoint.path.pop_back();
    rest.resize(slash);
  }
  const auto at = parse_host_port(rest);
  if (!at || at->host.empty()) return std::nullopt;
  endpoint.host = at->host;
  endpoint.authority = url_host(at->host) + (at->port ? ":" + std::to_string(*at->port) : "");
  endpoint.port = std::to_string(at->port.value_or(endpoint.tls ? 443 : 80));
  return endpoint;
}

std::shared_ptr<ssl::context> tls_context(const Certificates& certificates) {
  auto context = std::make_shared<ssl::context>(ssl::context::tls_client);
  context->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 |
                       ssl::context::no_tlsv1_1);
  if (certificates.ca_pem.empty()) {
    context->set_default_verify_paths();
  } else {
    context->add_certificate_authority(asio::buffer(certificates.ca_pem));
  }
  if (!certificates.client_certificate_pem.empty()) {
    context->use_certificate_chain(asio::buffer(certificates.client_certificate_pem));
    context->use_private_key(asio::buffer(certificates.client_key_pem), ssl::context::pem);
  }
  return context;
}

std::shared_ptr<Connection> Connection::make(const Endpoint& endpoint,
                                             std::shared_ptr<ssl::context> context) {
  return std::make_shared<BeastConnection>(endpoint, std::move(context));
}

auto BeastConnection::finish() {
  pending_ = true;
  return [this](const Problem& problem, const auto&...) {
    pending_ = false;
    problem_ = problem;
  };
}

Connection::Expected<void> BeastConnection::wait(Time deadline, const Cancel& cancel) {
  // The hook may fire late, during another call on this connection: it only wakes it up.
  const auto wake = cancel.on_cancel([self = shared_from_this()] { asio::post(self->io_, [] {}); });
  while (pending_) {
    if (cancel.cancelled()) return std::unexpected(cancelled());
    if (std::chrono::steady_clock::now() >= deadline) {
      return std::unexpected(NetError{NetError::Kind::Timeout, "no answer in time"});
    }
    io_.restart();
    io_.run_one_until(deadline);
  }
  if (cancel.cancelled()) return std::unexpected(cancelled());
  return {};
}

/// As wait(), for operations that are not resumed: they have ended when this returns.
Connection::Expected<void> BeastConnection::complete(Time deadline, const Cancel& cancel) {
  auto waited = wait(deadline, cancel);
  if (!waited) {
    keep_ = false;
    Problem ignored;
    tcp_.socket().close(ignored);
    io_.restart();
    while (pending_ && io_.run_one() > 0) {
    }
  }
  return waited;
}

Connection::Expected<void> BeastConnection::step(const std::string& name, Time deadline,
                                                 const Cancel& cancel) {
  auto done = complete(deadline, cancel);
  if (!done && done.error().kind == NetError::Kind::Timeout) {
    problem_ = asio::error::timed_out;
  } else if (!done) {
    return done;
  }
  if (problem_) return std::unexpected(connect_error(problem_, name));
  return {};
}

template <typename Stream>
Connection::Expected<void> BeastConnection::handshake(Stream& stream, const std::string& host,
                                                      const std::string& name, Time deadline,
                                                      const Cancel& cancel) {
  if (!is_ip_address(host)) SSL_set_tlsext_host_name(stream.native_handle(), host.c_str());
  if (endpoint_.verify) {
    stream.set_verify_mode(ssl::verify_peer);
    stream.set_verify_callback(ssl::host_name_verification(host));
  }
  stream.async_handshake(ssl::stream_base::client, finish());
  return step(name, deadline, cancel);
}

Connection::Expected<void> BeastConnection::connect(Time deadline, const Cancel& cancel) {
  const Hop hop = first_hop(endpoint_);
  const auto found = look_up(hop, deadline, cancel);
  if (!found) return std::unexpected(found.error());
  tcp_.async_connect(*found, finish());
  if (auto done = step(hop.name, deadline, cancel); !done) return done;
  Problem problem;
  tcp_.socket().set_option(tcp::no_delay(true), problem);
  tcp_.socket().set_option(asio::socket_base::keep_alive(true), problem);
  if (const auto& proxy = endpoint_.proxy) {
    if (proxy->kind == Proxy::Kind::Https) {
      tls_.emplace(tcp_, *context_);
      if (auto done = handshake(*tls_, proxy->host, hop.name, deadline, cancel); !done) return done;
    }
    if (!endpoint_.forwarded()) {
      auto open =
          proxy->kind == Proxy::Kind::Socks5 ? socks(deadline, cancel) : tunnel(deadline, cancel);
      if (!open) return open;
    }
  }
  if (!endpoint_.tls) return {};
  const std::string& name = endpoint_.tls_name.empty() ? endpoint_.host : endpoint_.tls_name;
  const std::string place = place_of(endpoint_);
  if (tls_) {
    inner_tls_.emplace(*tls_, *context_);
    return handshake(*inner_tls_, name, place, deadline, cancel);
  }
  tls_.emplace(tcp_, *context_);
  return handshake(*tls_, name, place, deadline, cancel);
}

Connection::Expected<void> BeastConnection::write(const std::string& wire, Time deadline,
                                                  const Cancel& cancel) {
  on_stream([&](auto& stream) { asio::async_write(stream, asio::buffer(wire), finish()); });
  return step(endpoint_.proxy->name(), deadline, cancel);
}

Connection::Expected<std::string> BeastConnection::read_exactly(size_t size, Time deadline,
                                                                const Cancel& cancel) {
  std::string bytes(size, '\0');
  on_stream([&](auto& stream) { asio::async_read(stream, asio::buffer(bytes), finish()); });
  if (auto done = step(endpoint_.proxy->name(), deadline, cancel); !done)
    return std::unexpected(done.error());
  return bytes;
}

Connection::Expected<void> BeastConnection::tunnel(Time deadline, const Cancel& cancel) {
  const std::string place = place_of(endpoint_);
  std::string ask = "CONNECT " + place + " HTTP/1.1\r\nHost: " + place + "\r\n";
  if (endpoint_.proxy->user)
    ask += "Proxy-Authorization: " + endpoint_.proxy->basic_authorization() + "\r\n";
  if (auto sent = write(ask + "\r\n", deadline, cancel); !sent) return sent;
  http::response_parser<http::empty_body> answer;
  answer.header_limit(kHeadBytesMax);
  answer.skip(true);  // the server's bytes follow the head
  on_stream([&](auto& stream) { http::async_read_header(stream, buffer_, answer, finish()); });
  if (auto read = step(endpoint_.proxy->name(), deadline, cancel); !read) return read;
  if (answer.get().result_int() == 200) return {};
  return std::unexpected(NetError{
      NetError::Kind::Connect, endpoint_.proxy->name() + ": refuses to connect to " + place + ": " +
                                   std::to_string(answer.get().result_int()) + " " +
                                   std::string(answer.get().reason())});
}

Connection::Expected<void> BeastConnection::socks(Time deadline, const Cancel& cancel) {
  const Proxy& proxy = *endpoint_.proxy;
  const auto refused = [&](const std::string& what) {
    return std::unexpected(NetError{NetError::Kind::Connect, proxy.name() + ": " + what});
  };
  const auto counted = [](const std::string& text) {
    return std::string(1, static_cast<char>(text.size())) + text;
  };
  constexpr size_t kLongest = 255;
  if (proxy.user.value_or("").size() > kLongest || proxy.password.size() > kLongest ||
      endpoint_.host.size() > kLongest) {
    return refused("SOCKS5 has at most 255 bytes for a user, a password and a host");
  }
  const std::string methods =
      proxy.user ? std::string("\x05\x02\x00\x02", 4) : std::string("\x05\x01\x00", 3);
  if (auto sent = write(methods, deadline, cancel); !sent) return sent;
  auto chosen = read_exactly(2, deadline, cancel);
  if (!chosen) return std::unexpected(chosen.error());
  if ((*chosen)[0] != '\x05') return refused("does not speak SOCKS5");
  if ((*chosen)[1] == '\x02' && proxy.user) {
    if (auto sent =
            write("\x01" + counted(*proxy.user) + counted(proxy.password), deadline, cancel);
        !sent)
      return sent;
    auto accepted = read_exactly(2, deadline, cancel);
    if (!accepted) return std::unexpected(accepted.error());
    if ((*accepted)[1] != '\0') return refused("does not accept the user and password");
  } else if ((*chosen)[1] != '\0') {
    return refused(proxy.user ? "accepts no user and password" : "asks for a user and a password");
  }
  Problem is_name;
  const auto address = asio::ip::make_address(endpoint_.host, is_name);
  std::string ask("\x05\x01\x00", 3);
  if (is_name) {
    ask += "\x03" + counted(endpoint_.host);
  } else if (address.is_v4()) {
    const auto bytes = address.to_v4().to_bytes();
    ask += "\x01" + std::string(bytes.begin(), bytes.end());
  } else {
    const auto bytes = address.to_v6().to_bytes();
    ask += "\x04" + std::string(bytes.begin(), bytes.end());
  }
  const int port = std::stoi(endpoint_.port);
  ask += {static_cast<char>(port >> 8), static_cast<char>(port & 255)};
  if (auto sent = write(ask, deadline, cancel); !sent) return sent;
  auto answer = read_exactly(5, deadline, cancel);  // with the first byte of its address
  if (!answer) return std::unexpected(answer.error());
  if (const int code = static_cast<unsigned char>((*answer)[1]); code != 0) {
    static constexpr const char* kReplies[] = {"",
                                               "general failure",
                                               "not allowed by its rules",
                                               "network unreachable",
                                               "host unreachable",
                                               "connection refused",
                                               "time to live expired",
                                               "command not supported",
                                               "address type not supported"};
    return refused("refuses to connect to " + place_of(endpoint_) + ": " +
                   (code < 9 ? kReplies[code] : "reply " + std::to_string(code)));
  }
  const int type = (*answer)[3];
  const size_t size = type == 1 ? 4 : type == 4 ? 16 : 1 + static_cast<unsigned char>((*answer)[4]);
  auto rest = read_exactly(size + 2 - 1, deadline, cancel);  // the address, and a port
  if (!rest) return std::unexpected(rest.error());
  return {};
}

Connection::Expected<void> BeastConnection::send(const WireRequest& request, Time deadline,
                                                 const Cancel& cancel) {
  keep_ = false;
  const std::string wire = wire_text(request);
  on_stream([&](auto& stream) { asio::async_write(stream, asio::buffer(wire), finish()); });
  if (auto sent = complete(deadline, cancel); !sent) return sent;
  if (problem_) return std::unexpected(net_error(problem_));
  return {};
}

Connection::Expected<Response> BeastConnection::exchange(const WireRequest& request,
                                                         size_t body_max, Time deadline,
                                                         const Cancel& cancel) {
  if (auto sent = send(request, deadline, cancel); !sent) return std::unexpected(sent.error());
  http::response_parser<http::string_body> parser;
  parser.header_limit(kHeadBytesMax);
  parser.body_limit(body_max);
  on_stream([&](auto& stream) { http::async_read(stream, buffer_, parser, finish()); });
  if (auto read = complete(deadline, cancel); !read) return std::unexpected(read.error());
  if (problem_) return std::unexpected(net_error(problem_));
  keep_ = parser.keep_alive();
  Response response = head_of(parser.get());
  response.body = std::move(parser.get().body());
  return response;
}

Connection::Expected<Response> BeastConnection::begin(const WireRequest& request, size_t body_max,
                                                      Time deadline, const Cancel& cancel) {
  if (auto sent = send(request, deadline, cancel); !sent) return std::unexpected(sent.error());
  stream_.emplace();
  stream_->header_limit(kHeadBytesMax);
  stream_->body_limit(UINT64_MAX);  // a watch has no end
  on_stream([&](auto& stream) { http::async_read_header(stream, buffer_, *stream_, finish()); });
  if (auto read = complete(deadline, cancel); !read) return std::unexpected(read.error());
  if (problem_) return std::unexpected(net_error(problem_));
  Response response = head_of(stream_->get());
  if (response.status == 200) return response;
  for (bool more = true; more;) {
    auto read = read_some(response.body, deadline, cancel);
    if (!read) return std::unexpected(read.error());
    if (response.body.size() > body_max) {
      return std::unexpected(NetError{NetError::Kind::Cut, "the answer is too long"});
    }
    more = *read;
  }
  return response;
}

Connection::Expected<bool> BeastConnection::read_some(std::string& out, Time deadline,
                                                      const Cancel& cancel) {
  if (!reading_) {
    if (stream_->is_done()) return false;
    auto& body = stream_->get().body();
    body.data = chunk_.data();
    body.size = chunk_.size();
    body.more = true;
    reading_ = true;
    on_stream([&](auto& stream) { http::async_read_some(stream, buffer_, *stream_, finish()); });
  }
  if (auto read = wait(deadline, cancel); !read) return std::unexpected(read.error());
  reading_ = false;
  if (problem_ && problem_ != http::error::need_buffer) {
    return std::unexpected(net_error(problem_));
  }
  out.append(chunk_.data(), chunk_.size() - stream_->get().body().size);
  return !stream_->is_done();
}

bool BeastConnection::usable() {
  if (!keep_ || buffer_.size() > 0) return false;
  // An idle server sends nothing: if it is readable, the connection has ended.
  char byte;
  const auto got = ::recv(tcp_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

}  // namespace dsj::kube
