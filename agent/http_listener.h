// A small HTTP/1.1 server on a thread of its own, whose limits hold before a peer is believed: the
// head has a size and a time, a refused body is never read, an admitted one has a size and a time,
// connections have a number. Over Boost.Beast, which stays in http_listener.cc; cpprestsdk's
// listener reads every body to its end.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agent/messages.h"
#include "common/result.h"

namespace dsj::agent {

struct HttpLimits {
  size_t head_bytes = 32 * 1024;
  size_t body_bytes = 0;  ///< 0: no body at all
  Time head{5000};        ///< from the connection to the end of the first head
  Time request{10'000};   ///< from a head to the end of its answer
  Time idle{60'000};      ///< of a kept connection, to the end of the next head
  int connections = 64;   ///< one more ends the oldest that was never admitted, or itself
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

class HttpListener {
 public:
  /// `address` is numeric, IPv4 or IPv6; port 0: any free one.
  static Result<std::unique_ptr<HttpListener>> open(const std::string& address, int port,
                                                    HttpLimits limits,
                                                    std::shared_ptr<HttpHandler> handler);
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

}  // namespace dsj::agent
