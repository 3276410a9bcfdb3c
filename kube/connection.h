// One HTTP/1.1 connection to a server, with or without TLS, with Boost.Beast, which only
// connection.cc includes. Every call blocks its thread until a deadline or until it is cancelled;
// there are no other threads. One call at a time.
#pragma once

#include <chrono>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kube/certificate_source.h"
#include "kube/http.h"
#include "kube/proxy.h"

namespace boost::asio::ssl {
class context;
}

namespace dsj::kube {

/// The parts of a server's address.
struct Endpoint {
  std::string host, port;
  std::string authority;  ///< HOST or HOST:PORT as in the address, for the Host header
  std::string path;       ///< prefix of every request's path, without a trailing '/'
  bool tls = true;
  bool verify = true;
  std::string tls_name;  ///< expected in the server's certificate; empty: the host
  std::optional<Proxy> proxy;

  /// Whether the proxy reads each request; the request line then has the whole address.
  bool forwarded() const { return proxy && !tls && proxy->kind != Proxy::Kind::Socks5; }
};

/// Parses "https://HOST[:PORT][/PATH]"; nullopt for another form.
std::optional<Endpoint> parse_endpoint(const std::string& server);

/// Throws boost::system::system_error if OpenSSL cannot read the certificates.
std::shared_ptr<boost::asio::ssl::context> tls_context(const Certificates& certificates);

/// The content of a request; Connection adds the length of the body.
struct WireRequest {
  std::string method;
  std::string target;  ///< path and query
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

class Connection {
 public:
  using Time = std::chrono::steady_clock::time_point;
  template <typename T>
  using Expected = std::expected<T, NetError>;

  static std::shared_ptr<Connection> make(const Endpoint& endpoint,
                                          std::shared_ptr<boost::asio::ssl::context> context);
  virtual ~Connection() = default;

  /// Connects, through a proxy if there is one. Sends nothing of a request: fails with Connect, Tls or Cancelled.
  virtual Expected<void> connect(Time deadline, const Cancel& cancel) = 0;
  /// Sends one request and reads its answer of at most `body_max` bytes.
  virtual Expected<Response> exchange(const WireRequest& request, size_t body_max, Time deadline,
                                      const Cancel& cancel) = 0;
  /// Sends one request and reads the head of its answer; read_some() then reads the body. If the
  /// status is not 200, this reads the body, too.
  virtual Expected<Response> begin(const WireRequest& request, size_t body_max, Time deadline,
                                   const Cancel& cancel) = 0;
  /// Appends the available part of the body to `out`. True if there is more. After a Timeout it may
  /// be called again; nothing is lost.
  virtual Expected<bool> read_some(std::string& out, Time deadline, const Cancel& cancel) = 0;

  /// Whether the server allows another request on this connection and has not closed it.
  virtual bool usable() = 0;
};

}  // namespace dsj::kube
