// A small HTTP/1.1 server on a thread of its own, over TLS or not, whose limits hold before a peer
// is believed: the head has a size and a time, a refused body is never read, an admitted one has a
// size and a time, connections have a number. Over Boost.Beast, which stays in http_listener.cc;
// cpprestsdk's listener reads every body to its end.
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
  size_t body_bytes = 0;         ///< 0: no body at all
  Milliseconds head{5000};       ///< from the connection to the end of the first head, TLS included
  Milliseconds request{10'000};  ///< from a head to the end of its answer
  Milliseconds idle{60'000};     ///< of a kept connection, to the end of the next head
  /// One more ends the oldest that was never admitted, else the one that is idle longest, else
  /// itself.
  int connections = 64;
};

struct HttpHead {
  std::string method, path, authorization;
};
struct HttpAnswer {
  int status = 200;
  std::string body;
  std::string content_type = "text/plain; charset=utf-8";
};

/// Called on the listener's thread; must not block.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  /// Before the body is read. An answer refuses the request and ends the connection.
  virtual std::optional<HttpAnswer> refuse(const HttpHead& head) = 0;
  virtual HttpAnswer answer(const HttpHead& head, const std::string& body) = 0;
};

/// Asked for each new connection, on the listener's thread: what its handshake shows.
using TlsSource = std::function<std::shared_ptr<boost::asio::ssl::context>()>;

/// A server's context: TLS 1.2 or newer, `chain_pem` (the server's certificate first) and its key.
Result<std::shared_ptr<boost::asio::ssl::context>> server_tls(const std::string& chain_pem,
                                                              const std::string& key_pem);

class HttpListener {
 public:
  /// `address` is numeric, IPv4 or IPv6; port 0: any free one. Without `tls` it is plain HTTP.
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
  /// Open now.
  int connections() const;

 private:
  struct State;
  explicit HttpListener(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dsj
