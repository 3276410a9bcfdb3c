// Beats over HTTP/1.1: POST /v1/beat with the JSON of messages.h and a bearer token (join_gate.h).
// The server uses common/http with its limits, the client http_link.h. In a cluster over TLS: the
// server authenticates itself first (join_keys.h), so no other server gets a token. With `dsj run`
// without TLS.
//
//   refused before the body is read    a caller that the gate does not admit (401, 403; 503: try
//                                      again), another path or method (404, 405), a body without a
//                                      length (411) or over kMessageBytesMax (413)
//   refused after it                   a wrong shape (400), another caller's worker (403), a beat
//                                      out of order (409, with the number to continue from)
// Tested by: tests/agent/wire/transport_test.cc
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/join/join_gate.h"
#include "agent/wire/transport.h"
#include "common/http/http_listener.h"

namespace dsj::agent {

inline constexpr char kBeatPath[] = "/v1/beat";
inline constexpr char kNewestSequenceKey[] = "newestSequence";  ///< in the body of a 409

struct Endpoint {
  std::string address;  ///< address to connect to
  int port = 0;
  std::string name = {};  ///< name in the server's certificate; empty means `address`
};

class HttpServer final : public BeatServer {
 public:
  /// Listens on `port` of `address` (0: any free port), for about `workers` connections. Raises
  /// this process's limit of open files if permitted.
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

/// Finds worker 0. Called for a new connection, and again after a beat without an answer or a
/// refusal, because worker 0 may have moved. Other answers keep the connection unless the server
/// closes it.
using FindServer = std::function<Result<Endpoint>()>;
struct Credentials {
  std::function<std::string()> token;  ///< called for each beat
  std::function<void()> refused;       ///< called if the server refuses the token; may be null
  /// The authority that must have signed the server's certificate, as PEM. nullopt for HTTP without
  /// TLS.
  std::optional<std::string> authority = {};
};

class HttpClient final : public BeatClient {
 public:
  /// `timeout` is for connection and answer; it grows after late tries (patience()).
  HttpClient(FindServer find, Credentials credentials, Time timeout = Time(2000));
  ~HttpClient() override;
  void send(const WorkerReport& report) override;
  std::optional<Result<Directive>> receive() override;
  int ready_fd() const override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Number of threads for all clients of this process; default 2. Call once, before the first use.
void set_http_threads(int threads);

/// Writes {"address": ..., "port": ...} durably, readable only by the owner.
Status write_endpoint(const std::string& path, const Endpoint& endpoint);
Result<Endpoint> read_endpoint(const std::string& path);

}  // namespace dsj::agent
