#include "kube/api_transport.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "kube/connection.h"
#include "kube/plugin_source.h"
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
        certificates_(access),
        headers_(access.headers) {
    if (access.plugin) {
      plugin_ = std::make_unique<PluginSource>(
          *access.plugin, system_programs(),
          PluginSource::Surroundings{.terminal = [] { return ::isatty(STDIN_FILENO) == 1; }});
    }
    (void)context();  // reports what OpenSSL cannot read
  }

  std::expected<Response, NetError> call(const Request& request, const Cancel& cancel) override {
    const auto bearer = authenticate(cancel);
    if (!bearer) return std::unexpected(bearer.error());
    const auto deadline = SteadyClock::now() + request.timeout;
    auto kept = take(deadline, cancel);
    if (!kept) return std::unexpected(kept.error());
    auto response =
        kept->connection->exchange(build(request, *bearer), kResponseBytesMax, deadline, cancel);
    if (response && response->status == 401) {
      refused(*bearer);
    } else if (response) {
      keep(std::move(*kept));
    }
    return response;
  }

  std::expected<StreamResponse, NetError> open(const Request& request,
                                               const Cancel& cancel) override {
    if (cancel.cancelled()) {
      return std::unexpected(NetError{NetError::Kind::Cancelled, "cancelled"});
    }
    const auto bearer = authenticate(cancel);
    if (!bearer) return std::unexpected(bearer.error());
    const auto deadline = SteadyClock::now() + request.timeout;
    auto made = connect(deadline, cancel);
    if (!made) return std::unexpected(made.error());
    const auto connection = std::move(made->connection);
    auto head = connection->begin(build(request, *bearer), kResponseBytesMax, deadline, cancel);
    if (!head) return std::unexpected(head.error());
    StreamResponse response{.head = std::move(*head), .lines = nullptr};
    if (response.head.status == 401) refused(*bearer);
    if (response.head.status == 200) {
      response.lines = std::make_unique<BodyLines>(connection, cancel);
    }
    return response;
  }

 private:
  struct Kept {
    std::shared_ptr<Connection> connection;
    int64_t generation;  ///< of the certificates used to open it
    SteadyClock::time_point since = {};
  };
  using Context = std::shared_ptr<boost::asio::ssl::context>;

  /// The certificates' generation, and their TLS context, which is rebuilt when they change.
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

  /// The credentials of a request, besides the connection's certificate.
  struct Bearer {
    std::string token;       ///< empty if none
    int64_t plugin_run = 0;  ///< the run that gave the token or the certificate
  };

  std::expected<Bearer, NetError> authenticate(const Cancel& cancel) {
    if (!plugin_) return Bearer{.token = tokens_.token()};
    auto issued = plugin_->current(cancel);
    if (!issued) return std::unexpected(issued.error());
    certificates_.replace_client(issued->credential.certificate_pem, issued->credential.key_pem);
    return Bearer{.token = std::move(issued->credential.token), .plugin_run = issued->generation};
  }

  void refused(const Bearer& bearer) {
    tokens_.refused();
    certificates_.refused();
    if (plugin_) plugin_->refused(bearer.plugin_run);
  }

  WireRequest build(const Request& request, const Bearer& bearer) {
    WireRequest out{.method = request.method, .target = endpoint_.path + request.path};
    if (endpoint_.forwarded()) out.target.insert(0, "http://" + endpoint_.authority);
    out.headers = {
        {"Host", endpoint_.authority},
        // Some paths (/openid/v1/jwks) have another media type and answer 406 to plain JSON.
        {"Accept", request.accept.empty() ? "application/json, */*;q=0.5" : request.accept},
        {"User-Agent", kUserAgent}};
    if (!bearer.token.empty()) out.headers.emplace_back("Authorization", "Bearer " + bearer.token);
    out.headers.insert(out.headers.end(), headers_.begin(), headers_.end());
    if (endpoint_.forwarded() && endpoint_.proxy->user)
      out.headers.emplace_back("Proxy-Authorization", endpoint_.proxy->basic_authorization());
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
  std::unique_ptr<PluginSource> plugin_;
  const std::vector<std::pair<std::string, std::string>> headers_;
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
  endpoint->tls_name = access.tls_server_name;
  endpoint->proxy = access.proxy;
  if (!access.client_certificate_pem.empty() &&
      !fit_together(access.client_certificate_pem, access.client_key_pem)) {
    return bad_input("the client's certificate or key cannot be read, or they do not match",
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
