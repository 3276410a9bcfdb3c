// Beats over HTTP/1.1 by cpprestsdk, which stays behind this header. POST /v1/beat with the JSON of
// messages.h; the run's key goes as a bearer token. Refused: another key (401), another path or
// method (404, 405), a body without a length (411), over kMessageBytesMax (413), of a wrong shape
// (400). Left out: TLS (the local mode stays on the loopback interface). A refused body is not
// kept, but cpprestsdk still reads it off the connection.
#pragma once

#include <memory>
#include <string>

#include "agent/transport.h"

namespace dsj::agent {

struct Endpoint {
  std::string address;
  int port = 0;
};

class HttpServer final : public BeatServer {
 public:
  /// Listens on a free port of `address`.
  static Result<std::unique_ptr<HttpServer>> open(const std::string& address,
                                                  const std::string& key);
  ~HttpServer() override;
  Endpoint endpoint() const;
  std::vector<WorkerReport> take() override;
  void publish(const Board& board) override;
  int ready_fd() const override;

 private:
  struct State;
  explicit HttpServer(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

class HttpClient final : public BeatClient {
 public:
  /// `endpoint_file` is read again whenever the last beat failed: worker 0 may have moved.
  HttpClient(std::string endpoint_file, std::string key, Time timeout = Time(2000));
  ~HttpClient() override;
  void send(const WorkerReport& report) override;
  std::optional<Result<Directive>> receive() override;
  int ready_fd() const override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

/// Threads of cpprestsdk's pool, for both; call before the first use, once.
void set_http_threads(int threads);

/// {"address": ..., "port": ...}, durable, only for the owner's eyes.
Status write_endpoint(const std::string& path, const Endpoint& endpoint);
Result<Endpoint> read_endpoint(const std::string& path);

/// Compares in a time that does not depend on where they differ.
bool same_key(std::string_view a, std::string_view b);

}  // namespace dsj::agent
