// A small HTTP/1.1 server on a thread of its own, with or without TLS. Its limits hold before it
// believes a peer: a head has a size and a time, a refused body is never read, an admitted body has
// a size and a time, and the connections are counted. Built on Boost.Beast, which stays in
// http_listener.cc. cpprestsdk's listener would read every body to its end.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/result.h"

namespace boost::asio::ssl {
class context;
}

namespace dsj {

struct HttpLimits {
  using Milliseconds = std::chrono::milliseconds;
  size_t head_bytes = 32 * 1024;
  size_t body_bytes = 0;         ///< 0: no body is admitted
  Milliseconds head{5000};       ///< from the connection to the end of the first head, TLS included
  Milliseconds request{10'000};  ///< from a head to the end of its answer
  Milliseconds idle{60'000};     ///< a kept connection, to the end of the next head
  /// One more than this ends the oldest that was never admitted, else the one idle longest, else
  /// itself.
  int connections = 64;
};

struct HttpHead {
  std::string method, path, authorization;
};
/// The content type of metrics in Prometheus' text format.
inline constexpr char kPrometheusText[] = "text/plain; version=0.0.4";

struct HttpAnswer {
  int status = 200;
  std::string body;
  std::string content_type = "text/plain; charset=utf-8";
};

/// Called on the listener's thread. Must not block.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  /// Called before the body is read. An answer refuses the request and ends the connection.
  virtual std::optional<HttpAnswer> refuse(const HttpHead& head) = 0;
  virtual HttpAnswer answer(const HttpHead& head, const std::string& body) = 0;
};

/// Asked for each new connection, on the listener's thread: the context for its handshake.
using TlsSource = std::function<std::shared_ptr<boost::asio::ssl::context>()>;

/// A server's TLS context (1.2 or newer). `chain_pem` starts with the server's own certificate.
Result<std::shared_ptr<boost::asio::ssl::context>> server_tls(const std::string& chain_pem,
                                                              const std::string& key_pem);

class HttpListener {
 public:
  /// `address` is numeric, IPv4 or IPv6. Port 0: any free one. Without `tls`: plain HTTP.
  static Result<std::unique_ptr<HttpListener>> open(const std::string& address, int port,
                                                    HttpLimits limits,
                                                    std::shared_ptr<HttpHandler> handler,
                                                    TlsSource tls = {});
  /// "127.0.0.1:8080", "[::]:8080".
  static Result<std::unique_ptr<HttpListener>> open(const std::string& address_and_port,
                                                    HttpLimits limits,
                                                    std::shared_ptr<HttpHandler> handler,
                                                    TlsSource tls = {});
  /// Ends all connections.
  ~HttpListener();
  int port() const;
  /// The number of open connections.
  int connections() const;
  /// How many connections were looked at so far, to find one that makes room: what a request or a
  /// new connection costs beside itself.
  int64_t looked_at() const;

 private:
  struct State;
  explicit HttpListener(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dsj
