// What an HTTP server asks and tells: limits, requests, answers, counts. http_listener.h has the server.
// Tested by: tests/common/http/http_listener_test.cc
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/http/doorway.h"

namespace boost::asio::ssl {
class context;
}

namespace dsj {

struct HttpLimits {
  using Milliseconds = std::chrono::milliseconds;
  size_t head_bytes = 32 * 1024;
  size_t body_bytes = 0;  ///< 0: no body is admitted
  /// From the connection to the end of the first head. With TLS from the connection to the first byte, and again
  /// from the handshake's begin; in between the peer waits at the door, for as long as it likes.
  Milliseconds head{5000};
  Milliseconds request{10'000};  ///< from a head to the end of its answer
  Milliseconds idle{60'000};     ///< a kept connection, to the end of the next head
  /// One more than this ends the oldest that was never admitted, else the one idle longest, else
  /// itself.
  int connections = 64;
  DoorLimits door = {};  ///< of a TLS server
};

/// What a listener has seen so far. Written on its thread, read on any.
struct HttpCounts {
  std::atomic<int> open = 0;  ///< connections, now
  /// Connections that were looked at to find one that makes room: what a request or a new connection costs
  /// beside itself.
  std::atomic<int64_t> looked_at = 0;
  std::atomic<int64_t> handshakes = 0;  ///< begun: each costs a signature
  std::atomic<int64_t> secured = 0;     ///< of them: ended well
  std::atomic<int64_t> gone = 0;        ///< peers that had gone before their handshake's turn
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

/// Asked for each handshake, on the listener's thread: its context. Null: there is no certificate yet.
using TlsSource = std::function<std::shared_ptr<boost::asio::ssl::context>()>;

}  // namespace dsj
