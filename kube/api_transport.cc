#include "kube/api_transport.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "kube/connection.h"
#include "kube/token_source.h"

namespace dsj::kube {
namespace {

using SteadyClock = std::chrono::steady_clock;

class BodyLines final : public LineStream {
 public:
  BodyLines(std::shared_ptr<Connection> connection, Cancel cancel)
      : connection_(std::move(connection)), cancel_(std::move(cancel)) {}

  std::expected<std::optional<std::string>, NetError> next(
      std::chrono::milliseconds idle) override {
    const auto deadline = SteadyClock::now() + idle;
    for (;;) {
      if (const size_t end = text_.find('\n', searched_); end != std::string::npos) {
        std::string line = text_.substr(begin_, end - begin_);
        begin_ = searched_ = end + 1;
        if (line.ends_with('\r')) line.pop_back();
        return line;
      }
      text_.erase(0, begin_);  // once per read, not per line
      begin_ = 0;
      searched_ = text_.size();
      if (text_.size() > kLineBytesMax) {
        return std::unexpected(NetError{NetError::Kind::Cut, "a line of the stream is too long"});
      }
      if (!more_) {
        if (text_.empty()) return std::nullopt;
        searched_ = 0;
        return std::exchange(text_, {});
      }
      auto more = connection_->read_some(text_, deadline, cancel_);
      if (!more) {
        if (more.error().kind == NetError::Kind::Timeout) {
          return std::unexpected(NetError{NetError::Kind::Timeout, "the stream is quiet"});
        }
        return std::unexpected(more.error());
      }
      more_ = *more;
    }
  }

 private:
  const std::shared_ptr<Connection> connection_;
  const Cancel cancel_;
  std::string text_;
  size_t begin_ = 0, searched_ = 0;
  bool more_ = true;
};

class ApiTransport final : public Transport {
 public:
  ApiTransport(const Access& access, Endpoint endpoint, size_t idle_max)
      : endpoint_(std::move(endpoint)),
        idle_max_(idle_max),
        tokens_(access),
        certificates_(access) {
    (void)context();  // finds what OpenSSL cannot read
  }

  std::expected<Response, NetError> call(const Request& request, const Cancel& cancel) override {
    const auto deadline = SteadyClock::now() + request.timeout;
    auto kept = take(deadline, cancel);
    if (!kept) return std::unexpected(kept.error());
    auto response = kept->connection->exchange(build(request), kResponseBytesMax, deadline, cancel);
    if (response && response->status == 401) {
      refused();
    } else if (response) {
      keep(std::move(*kept));
    }
    return response;
  }

  std::expected<StreamResponse, NetError> open(const Request& request,
                                               const Cancel& cancel) override {
    const auto deadline = SteadyClock::now() + request.timeout;
    if (cancel.cancelled()) {
      return std::unexpected(NetError{NetError::Kind::Cancelled, "cancelled"});
    }
    auto made = connect(deadline, cancel);
    if (!made) return std::unexpected(made.error());
    const auto connection = std::move(made->connection);
    auto head = connection->begin(build(request), kResponseBytesMax, deadline, cancel);
    if (!head) return std::unexpected(head.error());
    StreamResponse response{.head = std::move(*head), .lines = nullptr};
    if (response.head.status == 401) refused();
    if (response.head.status == 200) {
      response.lines = std::make_unique<BodyLines>(connection, cancel);
    }
    return response;
  }

 private:
  struct Kept {
    std::shared_ptr<Connection> connection;
    int64_t generation;  ///< of the certificates that it was opened with
    SteadyClock::time_point since = {};
  };
  using Context = std::shared_ptr<boost::asio::ssl::context>;

  /// The certificates' generation, and their TLS context, made anew when they change.
  std::pair<int64_t, Context> context() {
    const auto certificates = certificates_.current();
    const std::lock_guard lock(mutex_);
    if (!context_ || generation_ != certificates->generation) {
      context_ = tls_context(*certificates);
      generation_ = certificates->generation;
      idle_.clear();
    }
    return {generation_, context_};
  }

  std::expected<Kept, NetError> connect(SteadyClock::time_point deadline, const Cancel& cancel) {
    const auto [generation, tls] = context();
    Kept made{Connection::make(endpoint_, tls), generation};
    if (auto connected = made.connection->connect(deadline, cancel); !connected) {
      return std::unexpected(connected.error());
    }
    return made;
  }

  std::expected<Kept, NetError> take(SteadyClock::time_point deadline, const Cancel& cancel) {
    if (cancel.cancelled()) {
      return std::unexpected(NetError{NetError::Kind::Cancelled, "cancelled"});
    }
    (void)context();
    {
      const std::lock_guard lock(mutex_);
      drop_old();
      while (!idle_.empty()) {
        Kept kept = std::move(idle_.back());
        idle_.pop_back();
        if (kept.connection->usable()) return kept;
      }
    }
    return connect(deadline, cancel);
  }

  void keep(Kept kept) {
    const std::lock_guard lock(mutex_);
    drop_old();
    if (idle_.size() >= idle_max_ || kept.generation != generation_ || !kept.connection->usable()) {
      return;
    }
    kept.since = SteadyClock::now();
    idle_.push_back(std::move(kept));
  }

  void drop_old() {
    const auto oldest = SteadyClock::now() - kIdleTime;
    std::erase_if(idle_, [&](const Kept& kept) { return kept.since < oldest; });
  }

  void refused() {
    tokens_.refused();
    certificates_.refused();
  }

  WireRequest build(const Request& request) {
    WireRequest out{.method = request.method, .target = endpoint_.path + request.path};
    out.headers = {
        {"Host", endpoint_.host.contains(':') ? "[" + endpoint_.host + "]" : endpoint_.host},
        // Some paths (/openid/v1/jwks) have their own media type and answer 406 to JSON alone.
        {"Accept", request.accept.empty() ? "application/json, */*;q=0.5" : request.accept},
        {"User-Agent", "deepspeedjob"}};
    if (const std::string token = tokens_.token(); !token.empty()) {
      out.headers.emplace_back("Authorization", "Bearer " + token);
    }
    if (!request.content_type.empty()) {
      out.headers.emplace_back("Content-Type", request.content_type);
      out.body = request.body;
    }
    return out;
  }

  const Endpoint endpoint_;
  const size_t idle_max_;
  TokenSource tokens_;
  CertificateSource certificates_;
  std::mutex mutex_;
  Context context_;
  int64_t generation_ = 0;
  std::vector<Kept> idle_;  ///< most recently used last
};

}  // namespace

Result<std::unique_ptr<Transport>> make_api_transport(const Access& access, size_t idle_max) {
  auto endpoint = parse_endpoint(access.server);
  if (!endpoint) {
    return bad_input("is not the address of a server, expected https://HOST:PORT", access.server);
  }
  endpoint->verify = !access.insecure_skip_tls_verify;
  if (!access.client_certificate_pem.empty() &&
      !fit_together(access.client_certificate_pem, access.client_key_pem)) {
    return bad_input("the client's certificate or key cannot be read, or is not the other's",
                     access.server, "look at client-certificate and client-key in the kubeconfig");
  }
  try {
    return std::make_unique<ApiTransport>(access, std::move(*endpoint), idle_max);
  } catch (const std::exception& error) {
    return bad_input(std::string("the certificate authority is not accepted: ") + error.what(),
                     access.server);
  }
}

}  // namespace dsj::kube
