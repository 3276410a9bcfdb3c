// Beats over HTTP/1.1: POST /v1/beat with the JSON of messages.h and a bearer token (join_gate.h).
// The server stands on common/http with its limits, the client on http_link.h. In a cluster over TLS:
// the server proves itself first (join_keys.h), so a token goes to nobody else. With `dsj run` without.
//
//   refused before the body is read    a caller that the gate does not admit (401, 403; 503: ask
//                                      again), another path or method (404, 405), a body without a
//                                      length (411) or over kMessageBytesMax (413)
//   refused after it                   a wrong shape (400), a worker not the caller's own (403), a
//                                      beat out of order (409, with the number to go on from)
// Tested by: tests/agent/wire/transport_test.cc
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "agent/join/join_gate.h"
#include "agent/wire/transport.h"
#include "common/http/http_listener.h"

namespace dsj::agent {

inline constexpr char kBeatPath[] = "/v1/beat";
inline constexpr char kNewestSequenceKey[] = "newestSequence";  ///< of a 409

struct Endpoint {
  std::string address;  ///< what is connected to
  int port = 0;
  std::string name = {};  ///< what the server's certificate must be for; empty: `address`
};

class HttpServer final : public BeatServer {
 public:
  /// Listens on `port` of `address` (0: any free port), for about `workers` connections. Raises this process's
  /// limit of open files where it may.
  static Result<std::unique_ptr<HttpServer>> open(const std::string& address, int port,
                                                  std::shared_ptr<JoinGate> gate, int workers,
                                                  TlsSource tls = {});
  ~HttpServer() override;
  Endpoint endpoint() const;
  const HttpCounts& counts() const;
  std::vector<WorkerReport> take() override;
  void publish(Board board) override;
  int ready_fd() const override;

 private:
  struct State;
  HttpServer(std::shared_ptr<State> state, std::unique_ptr<HttpListener> listener,
             std::string address);
  std::shared_ptr<State> state_;
  std::unique_ptr<HttpListener> listener_;
  const std::string address_;
};

/// Called for a new connection, and again whenever the last beat had no answer or the server refused the
/// worker: worker 0 may have moved. Any other answer keeps the connection, unless the server ends it.
using FindServer = std::function<Result<Endpoint>()>;
struct Credentials {
  std::function<std::string()> token;  ///< called for each beat
  std::function<void()> refused;       ///< called if the server refuses the token; may be empty
  /// Who vouches for the server, as PEM; called for each new connection. Empty: HTTP without TLS.
  std::function<Result<std::string>()> authorities = {};
};

class HttpClient final : public BeatClient {
 public:
  /// `timeout`: for an answer, with the connection; longer after tries that were late (patience()).
  HttpClient(FindServer find, Credentials credentials, Time timeout = Time(2000));
  ~HttpClient() override;
  void send(const WorkerReport& report) override;
  std::optional<Result<Directive>> receive() override;
  int ready_fd() const override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Threads of all clients of this process; two, if nobody calls it. Call once, before the first use.
void set_http_threads(int threads);

/// Writes {"address": ..., "port": ...} durably, readable by the owner only.
Status write_endpoint(const std::string& path, const Endpoint& endpoint);
Result<Endpoint> read_endpoint(const std::string& path);

}  // namespace dsj::agent
