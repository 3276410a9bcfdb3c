// A worker's connection to worker 0's agent, on threads of its own, by Boost.Beast, which stays in http_link.cc.
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

/// What became of one request.
struct Asked {
  int status = 0;  ///< of the answer; 0: there is none
  std::string body;
  bool kept = false;    ///< with the answer: the server takes another request
  std::string problem;  ///< why there is none
  bool handshake_failed =
      false;          ///< the peer did not prove itself, or has no TLS; nothing was sent
  bool late = false;  ///< somebody took the connection, and did not answer in time
};

/// One request at a time. Connects with the first one.
class HttpLink {
 public:
  /// `host` is a name or an address. `tls`: null for plain HTTP.
  static std::shared_ptr<HttpLink> make(const std::string& host, int port,
                                        std::shared_ptr<boost::asio::ssl::context> tls);
  virtual ~HttpLink() = default;
  /// Sends `wire`, a whole request, and reads an answer of at most `body_most` bytes. `done` is called once, on
  /// one of the link's threads. The time runs from the connection on, or for a kept one from now; a name is looked
  /// up before, for ten times as long at the most. After a failure, and if the connection is not kept, the link
  /// is of no more use.
  virtual void ask(std::string wire, size_t body_most, std::chrono::milliseconds timeout,
                   std::function<void(Asked)> done) = 0;
};

/// The threads of all links. Call before the first link is made; later it changes nothing.
void set_link_threads(int threads);

}  // namespace dsj::agent
