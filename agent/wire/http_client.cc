#include <boost/asio/ssl/context.hpp>
#include <mutex>

#include "agent/join/join_keys.h"
#include "agent/wire/http_link.h"
#include "agent/wire/http_transport.h"
#include "agent/wire/transport.h"
#include "agent/wire/wake.h"
#include "common/net_address.h"

namespace dsj::agent {
namespace {

namespace ssl = boost::asio::ssl;

/// The sequence number in a 409; nullopt if it has none.
std::optional<int64_t> newest_sequence(const std::string& body) {
  const auto object = nlohmann::json::parse(body, nullptr, false);
  if (!object.is_object() || !object.contains(kNewestSequenceKey)) return std::nullopt;
  const auto& number = object[kNewestSequenceKey];
  return number.is_number_integer() ? std::optional(number.get<int64_t>()) : std::nullopt;
}

}  // namespace

struct HttpClient::State {
  FindServer find;
  Credentials credentials;
  Time timeout;
  std::shared_ptr<HttpLink> link;      // used by the agent's thread only
  std::shared_ptr<ServerProof> proof;  // for `link`; null without TLS
  std::string host, where;             // for `link`
  Wake wake;
  std::mutex mutex;
  std::optional<Result<Directive>> answer;
  bool keep = false;  // keep the connection: the server accepts another request
  int64_t ahead = 0;  // added to the reports' sequence, as the server requires
  int late = 0;       // consecutive tries that reached a machine but got no answer in time

  void put(Result<Directive> result, bool keep_link = false) {
    const std::lock_guard lock(mutex);
    answer = std::move(result);
    keep = keep_link;
    wake.set();
  }
  /// The server's newest number for this worker is `newest`: the beat after `sent` continues above
  /// it.
  void go_on(int64_t newest, int64_t sent) {
    const std::lock_guard lock(mutex);
    ahead = newest - sent;
  }
  Status connect();
  std::string request(const WorkerReport& report);
  void take(const Asked& asked, int64_t sent);
  void tell_refused();
  Error failed(const Asked& asked) const;
};

Status HttpClient::State::connect() {
  if (link) return {};
  DSJ_TRY(const Endpoint endpoint, find());
  std::shared_ptr<ssl::context> context;
  proof.reset();
  if (credentials.authority) {
    DSJ_TRY(proof, ServerProof::make(*credentials.authority,
                                     endpoint.name.empty() ? endpoint.address : endpoint.name));
    // It trusts only the proof's authority. Reading the image's list of authorities would take
    // more CPU time than the rest of the connection.
    context = std::make_shared<ssl::context>(ssl::context::tls_client);
    context->set_verify_mode(ssl::verify_peer);
    proof->demand(*context);
  }
  host = host_port_text(endpoint.address, endpoint.port);
  where = (proof ? "https://" : "http://") + host;
  link = HttpLink::make(endpoint.address, endpoint.port, std::move(context));
  return {};
}

std::string HttpClient::State::request(const WorkerReport& report) {
  const std::string body = to_text(report);
  return std::string("POST ") + kBeatPath + " HTTP/1.1\r\nHost: " + host +
         "\r\nAuthorization: Bearer " + credentials.token() +
         "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

Error HttpClient::State::failed(const Asked& asked) const {
  std::string why = asked.problem;
  if (asked.handshake_failed) {
    const std::string problem = proof->problem();
    why = "the server did not prove that it is worker 0's agent of this job (" +
          (problem.empty() ? asked.problem : "its certificate: " + problem) +
          "); no token was sent";
  }
  return Error{ErrorKind::Transient, why, where};
}

/// Called on a thread of the link. `sent` is the sequence number of the report.
void HttpClient::State::take(const Asked& asked, int64_t sent) {
  {
    const std::lock_guard lock(mutex);
    late = asked.late ? late + 1 : 0;
  }
  if (asked.status == 0) return put(std::unexpected(failed(asked)));
  if (asked.status == 200) return put(directive_from_json(asked.body), asked.kept);
  if (const auto newest = newest_sequence(asked.body); asked.status == 409 && newest) {
    go_on(*newest, sent);
  }
  const bool refused = asked.status == 401 || asked.status == 403;
  if (refused) tell_refused();
  put(fail(refused ? ErrorKind::BadInput : ErrorKind::Transient,
           "worker 0's agent answered " + std::to_string(asked.status) + " " + asked.body, where),
      asked.kept && !refused);
}

void HttpClient::State::tell_refused() {
  const std::lock_guard lock(mutex);
  if (credentials.refused) credentials.refused();
}

HttpClient::HttpClient(FindServer find, Credentials credentials, Time timeout)
    : state_(std::make_shared<State>()) {
  state_->find = std::move(find);
  state_->credentials = std::move(credentials);
  state_->timeout = timeout;
}

/// An answer may still arrive, but the receiver of `refused` may be destroyed after this.
HttpClient::~HttpClient() {
  const std::lock_guard lock(state_->mutex);
  state_->credentials.refused = nullptr;
}

void HttpClient::send(const WorkerReport& report) {
  if (auto status = state_->connect(); !status) {
    state_->put(std::unexpected(status.error()));
    return;
  }
  WorkerReport numbered = report;
  Time waits{0};  // for each try: an answered link is kept
  {
    const std::lock_guard lock(state_->mutex);
    numbered.sequence += state_->ahead;
    waits = patience(state_->timeout, state_->late);
  }
  state_->link->ask(
      state_->request(numbered), kMessageBytesMax, waits,
      [state = state_, sent = report.sequence](const Asked& asked) { state->take(asked, sent); });
}

std::optional<Result<Directive>> HttpClient::receive() {
  std::optional<Result<Directive>> answer;
  bool keep = false;
  {
    state_->wake.clear();
    const std::lock_guard lock(state_->mutex);
    answer = std::exchange(state_->answer, std::nullopt);
    keep = state_->keep;
  }
  if (answer && !keep) state_->link.reset();
  return answer;
}

int HttpClient::ready_fd() const {
  return state_->wake.fd();
}

void set_http_threads(int threads) {
  set_link_threads(threads);
}

}  // namespace dsj::agent
