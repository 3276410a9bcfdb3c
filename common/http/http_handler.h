// Types of an HTTP server: limits, requests, answers, counters. http_listener.h has the server.
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
  size_t body_bytes = 0;  ///< 0: no bodies
  /// From the connection to the end of the first head. With TLS: from the connection to the first byte, and
  /// again from the start of the handshake; between these, the peer waits at the door without a limit.
  Milliseconds head{5000};
  Milliseconds request{10'000};  ///< from a head to the end of its answer
  Milliseconds idle{60'000};     ///< a kept connection, until the end of the next head
  /// One connection more closes the oldest one without an admitted request, else the one idle
  /// longest, else the new one.
  int connections = 64;
  DoorLimits door = {};  ///< for a TLS server
};

/// Counters of a listener. Written on its thread, read on any thread.
struct HttpCounts {
  std::atomic<int> open = 0;  ///< present connections
  /// Connections that were examined to find one to close: the extra cost of a request or a new
  /// connection.
  std::atomic<int64_t> looked_at = 0;
  std::atomic<int64_t> handshakes = 0;  ///< begun: each costs a signature
  std::atomic<int64_t> secured = 0;     ///< of these, successful
  std::atomic<int64_t> gone = 0;        ///< peers that had left before their handshake
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
  /// Called before the body is read. An answer refuses the request and closes the connection.
  virtual std::optional<HttpAnswer> refuse(const HttpHead& head) = 0;
  virtual HttpAnswer answer(const HttpHead& head, const std::string& body) = 0;
};

/// Called for each handshake, on the listener's thread. Null if there is no certificate yet.
using TlsSource = std::function<std::shared_ptr<boost::asio::ssl::context>()>;

}  // namespace dsj
