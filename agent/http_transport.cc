#include "agent/http_transport.h"

#define _TURN_OFF_PLATFORM_STRING
#include <cpprest/http_client.h>
#include <cpprest/http_listener.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pplx/threadpool.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <mutex>

#include "common/files/posix_files.h"

namespace dsj::agent {
namespace {

namespace http = web::http;
using http::experimental::listener::http_listener;
using http::experimental::listener::http_listener_config;

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

/// A port that was free a moment ago: cpprestsdk cannot tell which one it took for port 0.
int free_port(const std::string& address) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  inet_pton(AF_INET, address.c_str(), &name.sin_addr);
  socklen_t size = sizeof name;
  int port = 0;
  if (bind(fd, reinterpret_cast<sockaddr*>(&name), size) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0) {
    port = ntohs(name.sin_port);
  }
  close(fd);
  return port;
}

std::string base_uri(const Endpoint& endpoint) {
  return "http://" + endpoint.address + ":" + std::to_string(endpoint.port);
}

}  // namespace

struct HttpServer::State {
  std::string key;
  Endpoint endpoint;
  std::unique_ptr<http_listener> listener;
  Wake wake;
  std::mutex mutex;
  std::vector<WorkerReport> inbox;
  Board board;

  void handle(http::http_request request, const std::shared_ptr<State>& self);
  void answer(http::http_request request, const std::string& body);
};

void HttpServer::State::handle(http::http_request request, const std::shared_ptr<State>& self) {
  std::string token;
  request.headers().match(http::header_names::authorization, token);
  if (!same_key(token, "Bearer " + key)) {
    request.reply(http::status_codes::Unauthorized);
    return;
  }
  if (request.relative_uri().path() != kPath) {
    request.reply(http::status_codes::NotFound);
    return;
  }
  if (!request.headers().has(http::header_names::content_length)) {
    request.reply(http::status_codes::LengthRequired);
    return;
  }
  if (request.headers().content_length() > kMessageBytesMax) {
    request.reply(http::status_codes::RequestEntityTooLarge);
    return;
  }
  request.extract_string(true).then([self, request](pplx::task<std::string> body) mutable {
    try {
      self->answer(request, body.get());
    } catch (const std::exception&) {  // the peer went away in the middle of its request
    }
  });
}

void HttpServer::State::answer(http::http_request request, const std::string& body) {
  auto report = worker_report_from_json(body);
  if (!report) {
    request.reply(http::status_codes::BadRequest, report.error().message);
    return;
  }
  Directive directive;
  {
    const std::lock_guard lock(mutex);
    directive = board.answer(report->worker, report->incarnation);
    inbox.push_back(std::move(*report));
  }
  wake.set();
  request.reply(http::status_codes::OK, to_text(directive), "application/json");
}

Result<std::unique_ptr<HttpServer>> HttpServer::open(const std::string& address,
                                                     const std::string& key) {
  auto state = std::make_shared<State>();
  state->key = key;
  std::string problem;
  for (int attempt = 0; attempt < 10; ++attempt) {  // another process may take the port first
    state->endpoint = {address, free_port(address)};
    try {
      state->listener = std::make_unique<http_listener>(base_uri(state->endpoint));
      const std::weak_ptr<State> weak = state;
      auto handler = [weak](http::http_request request) {
        if (const auto self = weak.lock()) self->handle(std::move(request), self);
      };
      state->listener->support(http::methods::POST, handler);
      state->listener->open().wait();
      return std::unique_ptr<HttpServer>(new HttpServer(state));
    } catch (const std::exception& error) {
      problem = error.what();
    }
  }
  return fail(ErrorKind::Environment, "cannot listen for the other agents: " + problem, address);
}

HttpServer::HttpServer(std::shared_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() {
  try {
    state_->listener->close().wait();
  } catch (const std::exception&) {  // closing is all that was wanted
  }
}

Endpoint HttpServer::endpoint() const {
  return state_->endpoint;
}

std::vector<WorkerReport> HttpServer::take() {
  state_->wake.clear();
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->inbox, {});
}

void HttpServer::publish(const Board& board) {
  const std::lock_guard lock(state_->mutex);
  state_->board = board;
}

int HttpServer::ready_fd() const {
  return state_->wake.fd();
}

struct HttpClient::State {
  std::string endpoint_file, key;
  Time timeout;
  std::unique_ptr<http::client::http_client> client;  // used by the agent's thread only
  Wake wake;
  std::mutex mutex;
  std::optional<Result<Directive>> answer;

  void put(Result<Directive> result) {
    const std::lock_guard lock(mutex);
    answer = std::move(result);
    wake.set();
  }
  Status connect();
};

Status HttpClient::State::connect() {
  if (client) return {};
  DSJ_TRY(const Endpoint endpoint, read_endpoint(endpoint_file));
  http::client::http_client_config config;
  config.set_timeout(timeout);
  client = std::make_unique<http::client::http_client>(base_uri(endpoint), config);
  return {};
}

HttpClient::HttpClient(std::string endpoint_file, std::string key, Time timeout)
    : state_(std::make_shared<State>()) {
  state_->endpoint_file = std::move(endpoint_file);
  state_->key = std::move(key);
  state_->timeout = timeout;
}

HttpClient::~HttpClient() = default;

void HttpClient::send(const WorkerReport& report) {
  if (auto status = state_->connect(); !status) {
    state_->put(std::unexpected(status.error()));
    return;
  }
  http::http_request request(http::methods::POST);
  request.set_request_uri(kPath);
  request.headers().add(http::header_names::authorization, "Bearer " + state_->key);
  request.set_body(to_text(report), "application/json");
  auto state = state_;
  const std::string where = state->client->base_uri().to_string();
  state->client->request(request)
      .then([](http::http_response response) {
        const auto code = response.status_code();
        return response.extract_string(true).then(
            [code](const std::string& body) { return std::make_pair(code, body); });
      })
      .then([state, where](pplx::task<std::pair<http::status_code, std::string>> task) {
        try {
          const auto [code, body] = task.get();
          if (code == http::status_codes::OK) return state->put(directive_from_json(body));
          state->put(fail(
              code == http::status_codes::Unauthorized ? ErrorKind::BadInput : ErrorKind::Transient,
              "worker 0's agent answered " + std::to_string(code) + " " + body, where));
        } catch (const std::exception& error) {
          state->put(fail(ErrorKind::Transient, error.what(), where));
        }
      });
}

std::optional<Result<Directive>> HttpClient::receive() {
  std::optional<Result<Directive>> answer;
  {
    state_->wake.clear();
    const std::lock_guard lock(state_->mutex);
    answer = std::exchange(state_->answer, std::nullopt);
  }
  if (answer && !*answer) state_->client.reset();
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

bool same_key(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ (b.empty() ? 0 : b[i % b.size()]));
  }
  return difference == 0;
}

}  // namespace dsj::agent
