// A worker's connection to worker 0's agent, on its own threads. Uses Boost.Beast, only in
// http_link.cc.
// Tested by: tests/agent/wire/transport_test.cc, tests/agent/join/join_keys_test.cc
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace boost::asio::ssl {
class context;
}

namespace dsj::agent {

/// The result of one request.
struct Asked {
  int status = 0;  ///< HTTP status of the answer; 0 if there is none
  std::string body;
  bool kept = false;    ///< if answered: the server takes another request
  std::string problem;  ///< why there is no answer
  bool handshake_failed =
      false;          ///< the peer did not authenticate itself, or has no TLS; nothing was sent
  bool late = false;  ///< connected, but no answer came in time
};

/// One request at a time. Connects with the first request.
class HttpLink {
 public:
  /// `host` is a name or an address. `tls` is null for plain HTTP.
  static std::shared_ptr<HttpLink> make(const std::string& host, int port,
                                        std::shared_ptr<boost::asio::ssl::context> tls);
  virtual ~HttpLink() = default;
  /// Sends `wire`, a complete request, and reads an answer of at most `body_most` bytes. `done` is
  /// called once, on one of the link's threads. `timeout` counts from the start of the connection,
  /// or from now if it exists; the name look-up before it may take ten times as long. After a
  /// failure, or if the connection is not kept, the link must not be used again.
  virtual void ask(std::string wire, size_t body_most, std::chrono::milliseconds timeout,
                   std::function<void(Asked)> done) = 0;
};

/// Number of threads for all links. Call before the first link is made; later calls have no effect.
void set_link_threads(int threads);

}  // namespace dsj::agent
