// A small HTTP/1.1 server on a thread of its own, with or without TLS. Its limits hold before it
// believes a peer: a head has a size and a time, a refused body is never read, an admitted body has
// a size and a time, and the connections are counted. Built on Boost.Beast, which stays in
// http_connection.h.
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
  /// `address` is numeric, IPv4 or IPv6. Empty, "0.0.0.0" or "::": all addresses of this machine, of both families, as
  /// programs in Go have it. Port 0: any free one. Without `tls`: plain HTTP.
  static Result<std::unique_ptr<HttpListener>> open(const std::string& address, int port,
                                                    HttpLimits limits,
                                                    std::shared_ptr<HttpHandler> handler,
                                                    TlsSource tls = {});
  /// "127.0.0.1:8080", "[fd00::1]:8080", ":8080".
  static Result<std::unique_ptr<HttpListener>> open(const std::string& address_and_port,
                                                    HttpLimits limits,
                                                    std::shared_ptr<HttpHandler> handler,
                                                    TlsSource tls = {});
  /// Ends all connections.
  ~HttpListener();
  int port() const;
  const HttpCounts& counts() const;

 private:
  struct State;
  explicit HttpListener(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dsj
