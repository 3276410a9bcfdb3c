// A small HTTP/1.1 server on its own thread, with or without TLS. Limits protect it from peers: a
// head has a maximum size and time, a refused body is never read, an admitted body has a maximum
// size and time, and the number of connections is limited. Built on Boost.Beast, which only
// http_connection.h includes.
#pragma once

#include <memory>
#include <string>

#include "common/http/http_handler.h"
#include "common/result.h"

namespace dsj {

/// A server's TLS context (1.2 or newer). `chain_pem` starts with the server's own certificate.
Result<std::shared_ptr<boost::asio::ssl::context>> server_tls(const std::string& chain_pem,
                                                              const std::string& key_pem);

class HttpListener {
 public:
  /// `address` is numeric, IPv4 or IPv6. Empty, "0.0.0.0" or "::": all addresses of this machine,
  /// of both families, as in Go. Port 0: any free one. Without `tls`: plain HTTP.
  static Result<std::unique_ptr<HttpListener>> open(const std::string& address, int port,
                                                    HttpLimits limits,
                                                    std::shared_ptr<HttpHandler> handler,
                                                    TlsSource tls = {});
  /// "127.0.0.1:8080", "[fd00::1]:8080", ":8080".
  static Result<std::unique_ptr<HttpListener>> open(const std::string& address_and_port,
                                                    HttpLimits limits,
                                                    std::shared_ptr<HttpHandler> handler,
                                                    TlsSource tls = {});
  /// Closes all connections.
  ~HttpListener();
  int port() const;
  const HttpCounts& counts() const;

 private:
  struct State;
  explicit HttpListener(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dsj
