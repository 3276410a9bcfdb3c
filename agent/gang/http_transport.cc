#include "agent/gang/http_transport.h"

#define _TURN_OFF_PLATFORM_STRING
#include <cpprest/http_client.h>
#include <fcntl.h>
#include <pplx/threadpool.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <boost/asio/ssl/context.hpp>

#include <mutex>

#include "agent/gang/join_keys.h"
#include "agent/gang/sequences.h"
#include "common/files/posix_files.h"

namespace dsj::agent {
namespace {

namespace http = web::http;

constexpr char kPath[] = "/v1/beat";

/// An eventfd that wakes the agent's poll().
class Wake {
 public:
  Wake() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Wake() { close(fd_); }
  Wake(const Wake&) = delete;
  void set() { [[maybe_unused]] const auto ignored = eventfd_write(fd_, 1); }
  void clear() {
    eventfd_t value;
    [[maybe_unused]] const auto ignored = eventfd_read(fd_, &value);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

constexpr char kNewestSequence[] = "newestSequence";

std::string base_uri(const Endpoint& endpoint, bool tls) {
  return (tls ? "https://" : "http://") + endpoint.address + ":" + std::to_string(endpoint.port);
}

/// The number in a 409; nullopt: it has none.
std::optional<int64_t> newest_sequence(const std::string& body) {
  const auto object = nlohmann::json::parse(body, nullptr, false);
  if (!object.is_object() || !object.contains(kNewestSequence)) return std::nullopt;
  const auto& number = object[kNewestSequence];
  return number.is_number_integer() ? std::optional(number.get<int64_t>()) : std::nullopt;
}

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
  if (head.path != kPath) return HttpAnswer{404, "no such path"};
  if (head.method != "POST") return HttpAnswer{405, "POST is expected"};
  return std::nullopt;
}

HttpAnswer HttpServer::State::answer(const HttpHead& head, const std::string& body) {
  auto report = worker_report_from_json(body);
  if (!report) return {400, report.error().message};
  const auto caller = gate->admit(head.authorization);
  if (!caller) return {caller.error().status, caller.error().why};
  if (const auto own = gate->permit(*caller, *report); !own) {
    return {own.error().status, own.error().why};
  }
  Directive directive;
  {
    const std::lock_guard lock(mutex);
    if (const auto newest = sequences.refuse(*report)) {
      return {409, nlohmann::json{{kNewestSequence, *newest}}.dump(), "application/json"};
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
  const HttpLimits limits{.body_bytes = kMessageBytesMax, .connections = 2 * workers + 32};
  DSJ_TRY(auto listener, HttpListener::open(address, port, limits, state, std::move(tls)));
  return std::unique_ptr<HttpServer>(
      new HttpServer(std::move(state), std::move(listener), address));
}

HttpServer::HttpServer(std::shared_ptr<State> state, std::unique_ptr<HttpListener> listener,
                       std::string address)
    : state_(std::move(state)), listener_(std::move(listener)), address_(std::move(address)) {}

HttpServer::~HttpServer() = default;

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

struct HttpClient::State {
  FindServer find;
  Credentials credentials;
  Time timeout;
  std::unique_ptr<http::client::http_client> client;  // used by the agent's thread only
  std::shared_ptr<ServerProof> proof;                 // of `client`; null: without TLS
  Wake wake;
  std::mutex mutex;
  std::optional<Result<Directive>> answer;
  bool answered = false;  // by a server that knows this worker: the connection is kept
  int64_t ahead = 0;      // of the reports' sequence: what the server asked for

  void put(Result<Directive> result, bool of_the_server = false) {
    const std::lock_guard lock(mutex);
    answer = std::move(result);
    answered = of_the_server;
    wake.set();
  }
  /// The server has taken `newest` from somebody: the beat after `sent` goes on above it.
  void go_on(int64_t newest, int64_t sent) {
    const std::lock_guard lock(mutex);
    ahead = newest - sent;
  }
  Status connect();
  Error failed(const std::exception& error, const std::string& where) const;
};

Status HttpClient::State::connect() {
  if (client) return {};
  DSJ_TRY(const Endpoint endpoint, find());
  http::client::http_client_config config;
  config.set_timeout(timeout);
  config.set_tlsext_sni_enabled(false);  // it has one certificate, and the address may end in a dot
  proof.reset();
  if (credentials.authorities) {
    DSJ_TRY(const std::string authorities, credentials.authorities());
    DSJ_TRY(proof, ServerProof::make(authorities,
                                     endpoint.name.empty() ? endpoint.address : endpoint.name));
    config.set_ssl_context_callback(
        [demanded = proof](boost::asio::ssl::context& context) { demanded->demand(context); });
  }
  client =
      std::make_unique<http::client::http_client>(base_uri(endpoint, proof != nullptr), config);
  return {};
}

/// cpprestsdk says "Error in SSL handshake" and not why.
Error HttpClient::State::failed(const std::exception& error, const std::string& where) const {
  std::string why = error.what();
  if (proof && why.find("SSL handshake") != std::string::npos) {
    const std::string problem = proof->problem();
    why = "the server did not prove that it is worker 0's agent of this job (" +
          (problem.empty() ? "the TLS handshake failed" : "its certificate: " + problem) +
          "); no token was sent";
  }
  return Error{ErrorKind::Transient, why, where};
}

HttpClient::HttpClient(FindServer find, Credentials credentials, Time timeout)
    : state_(std::make_shared<State>()) {
  state_->find = std::move(find);
  state_->credentials = std::move(credentials);
  state_->timeout = timeout;
}

HttpClient::~HttpClient() = default;

void HttpClient::send(const WorkerReport& report) {
  if (auto status = state_->connect(); !status) {
    state_->put(std::unexpected(status.error()));
    return;
  }
  WorkerReport numbered = report;
  {
    const std::lock_guard lock(state_->mutex);
    numbered.sequence += state_->ahead;
  }
  http::http_request request(http::methods::POST);
  request.set_request_uri(kPath);
  request.headers().add(http::header_names::authorization, "Bearer " + state_->credentials.token());
  request.set_body(to_text(numbered), "application/json");
  auto state = state_;
  const std::string where = state->client->base_uri().to_string();
  state->client->request(request)
      .then([](http::http_response response) {
        const auto code = response.status_code();
        return response.extract_string(true).then(
            [code](const std::string& body) { return std::make_pair(code, body); });
      })
      .then([state, where,
             sent = report.sequence](pplx::task<std::pair<http::status_code, std::string>> task) {
        try {
          const auto [code, body] = task.get();
          if (code == http::status_codes::OK) return state->put(directive_from_json(body), true);
          if (const auto newest = newest_sequence(body); code == 409 && newest) {
            state->go_on(*newest, sent);
          }
          const bool refused =
              code == http::status_codes::Unauthorized || code == http::status_codes::Forbidden;
          if (refused && state->credentials.refused) state->credentials.refused();
          state->put(fail(refused ? ErrorKind::BadInput : ErrorKind::Transient,
                          "worker 0's agent answered " + std::to_string(code) + " " + body, where),
                     !refused);
        } catch (const std::exception& error) {
          state->put(std::unexpected(state->failed(error, where)));
        }
      });
}

std::optional<Result<Directive>> HttpClient::receive() {
  std::optional<Result<Directive>> answer;
  bool keep = false;
  {
    state_->wake.clear();
    const std::lock_guard lock(state_->mutex);
    answer = std::exchange(state_->answer, std::nullopt);
    keep = state_->answered;
  }
  if (answer && !*answer && !keep) state_->client.reset();
  return answer;
}

int HttpClient::ready_fd() const {
  return state_->wake.fd();
}

void set_http_threads(int threads) {
  crossplat::threadpool::initialize_with_threads(static_cast<size_t>(threads));
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
