#include "agent/wire/http_transport.h"

#include <mutex>

#include "agent/wire/transport.h"
#include "agent/wire/wake.h"
#include "common/files/posix_files.h"
#include "common/host.h"
#include "common/log.h"

namespace dsj::agent {
namespace {

/// For the handshake and the first head. Clients wait up to four times five seconds (patience()),
/// and a slow server must not give up before they do.
constexpr HttpLimits::Milliseconds kHandshakeMost{30'000};
/// Files that worker 0's agent has open besides connections.
constexpr int kOtherFiles = 256;

}  // namespace

struct HttpServer::State final : HttpHandler {
  std::shared_ptr<JoinGate> gate;
  Wake wake;
  std::mutex mutex;
  std::vector<WorkerReport> inbox;
  Sequences sequences;
  Board board;

  std::optional<HttpAnswer> refuse(const HttpHead& head) override;
  HttpAnswer answer(const HttpHead& head, const std::string& body) override;
};

std::optional<HttpAnswer> HttpServer::State::refuse(const HttpHead& head) {
  if (const auto caller = gate->admit(head.authorization); !caller) {
    return HttpAnswer{caller.error().status, caller.error().why};
  }
  if (head.path != kBeatPath) return HttpAnswer{404, "no such path"};
  if (head.method != "POST") return HttpAnswer{405, "POST is expected"};
  return std::nullopt;
}

HttpAnswer HttpServer::State::answer(const HttpHead& head, const std::string& body) {
  auto report = worker_report_from_json(body);
  if (!report) return {400, report.error().message};
  const auto caller = gate->admit(head.authorization);
  if (!caller) return {caller.error().status, caller.error().why};
  if (const auto own = gate->permit(*caller, report->worker, report->incarnation); !own) {
    return {own.error().status, own.error().why};
  }
  Directive directive;
  {
    const std::lock_guard lock(mutex);
    if (const auto newest = sequences.refuse(*report)) {
      return {409, nlohmann::json{{kNewestSequenceKey, *newest}}.dump(), "application/json"};
    }
    directive = board.answer(report->worker, report->incarnation);
    inbox.push_back(std::move(*report));
  }
  wake.set();
  return {200, to_text(directive), "application/json"};
}

Result<std::unique_ptr<HttpServer>> HttpServer::open(const std::string& address, int port,
                                                     std::shared_ptr<JoinGate> gate, int workers,
                                                     TlsSource tls) {
  auto state = std::make_shared<State>();
  state->gate = std::move(gate);
  const HttpLimits limits{
      .body_bytes = kMessageBytesMax, .head = kHandshakeMost, .connections = 2 * workers + 32};
  const int needed = limits.connections + kOtherFiles, allowed = allow_open_files(needed);
  if (allowed < needed) {
    log::warn("this agent may have " + std::to_string(allowed) + " files open, and " +
              std::to_string(workers) + " workers take up to " + std::to_string(needed) +
              ": raise the hard limit of open files (nofile) of the container or the shell");
  }
  DSJ_TRY(auto listener, HttpListener::open(address, port, limits, state, std::move(tls)));
  return std::unique_ptr<HttpServer>(
      new HttpServer(std::move(state), std::move(listener), address));
}

HttpServer::HttpServer(std::shared_ptr<State> state, std::unique_ptr<HttpListener> listener,
                       std::string address)
    : state_(std::move(state)), listener_(std::move(listener)), address_(std::move(address)) {}

HttpServer::~HttpServer() = default;

const HttpCounts& HttpServer::counts() const {
  return listener_->counts();
}

Endpoint HttpServer::endpoint() const {
  return {address_, listener_->port()};
}

std::vector<WorkerReport> HttpServer::take() {
  state_->wake.clear();
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->inbox, {});
}

void HttpServer::publish(Board board) {
  const std::lock_guard lock(state_->mutex);
  std::swap(state_->board, board);  // the old one is freed outside the lock
}

int HttpServer::ready_fd() const {
  return state_->wake.fd();
}

Status write_endpoint(const std::string& path, const Endpoint& endpoint) {
  const nlohmann::json object = {{"address", endpoint.address}, {"port", endpoint.port}};
  PosixFiles files;
  return files.write_atomically(path, object.dump() + "\n");
}

Result<Endpoint> read_endpoint(const std::string& path) {
  PosixFiles files;
  DSJ_TRY(const std::string text, files.read_all(path, 4096));
  const auto object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object() || !object.contains("address") || !object["address"].is_string() ||
      !object.contains("port") || !object["port"].is_number_integer()) {
    return fail(ErrorKind::Transient, "not the address of worker 0's agent", path);
  }
  return Endpoint{object["address"], object["port"]};
}

}  // namespace dsj::agent
