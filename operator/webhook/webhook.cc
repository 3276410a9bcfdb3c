#include "operator/webhook/webhook.h"

#include <atomic>
#include <mutex>
#include <thread>

#include "common/http/http_listener.h"
#include "common/log.h"
#include "kube/base64.h"
#include "kube/certificate_source.h"
#include "operator/webhook/review.h"
#include "operator/webhook/rotation.h"

namespace dsj::op {
namespace {

using kube::Milliseconds;
using nlohmann::json;

/// How often the bundle is checked, in case it was overwritten: one read, and a write only if it
/// changed. Mounted certificates are checked as often.
constexpr Milliseconds kLook{60'000};
constexpr int kConflictsMax = 10;

kube::Resource configurations() {
  return {"admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations",
          "ValidatingWebhookConfiguration", false};
}

struct Reviewer final : HttpHandler {
  Reviewer(std::function<void(bool)> told, const WebhookOptions& options)
      : told_(std::move(told)),
        try_pods_(options.try_pods),
        read_only_root_(options.read_only_root) {}

  std::optional<HttpAnswer> refuse(const HttpHead& head) override {
    const std::string path = head.path.substr(0, head.path.find('?'));
    if (path != kWebhookPath) return HttpAnswer{404, "no such path"};
    if (head.method != "POST") return HttpAnswer{405, "POST is expected"};
    return std::nullopt;
  }

  HttpAnswer answer(const HttpHead&, const std::string& body) override {
    try {
      const auto reviewed = review(body, try_pods_, read_only_root_);
      if (!reviewed) return {400, reviewed.error().to_string()};
      told_(reviewed->allowed);
      const auto replace = json::error_handler_t::replace;
      return {200, reviewed->answer.dump(-1, ' ', false, replace), "application/json"};
    } catch (const std::exception& error) {
      // Anyone may send to this port: a defect in the checks must not end the operator.
      log::error(std::string("a review failed: ") + error.what());
      return {500, "the review failed"};
    }
  }

 private:
  const std::function<void(bool)> told_;
  const TryPods try_pods_;
  const std::optional<bool> read_only_root_;
};

}  // namespace

json bundle_patch(const json& configuration,
                  const std::function<std::string(const std::string&)>& bundle) {
  const auto found = configuration.find("webhooks");
  if (found == configuration.end() || !found->is_array()) return nullptr;
  json webhooks = *found;
  bool changed = false;
  for (json& webhook : webhooks) {
    json& client = webhook["clientConfig"];
    const std::string seen = kube::from_base64(client.value("caBundle", "")).value_or("");
    const std::string wanted = bundle(seen);
    if (wanted == seen) continue;
    client["caBundle"] = kube::to_base64(wanted);
    changed = true;
  }
  if (!changed) return nullptr;
  return {{"metadata", {{"resourceVersion", configuration["metadata"]["resourceVersion"]}}},
          {"webhooks", webhooks}};
}

struct Webhook::State {
  WebhookOptions options;
  kube::Client& client;
  kube::Clock& clock;
  Rotation rotation;                                 ///< publishing thread only
  std::unique_ptr<kube::CertificateSource> mounted;  ///< null if certificates are self-issued
  std::shared_ptr<const kube::Certificates> taken;   ///< from `mounted`, in use
  std::mutex mutex;
  std::shared_ptr<boost::asio::ssl::context> context;
  std::atomic<bool> tried = false;
  std::atomic<bool> complained = false;
  kube::Cancel stop;
  std::unique_ptr<HttpListener> listener;
  std::thread thread;

  Status show() {
    const ServerCertificate& certificate = rotation.shown();
    DSJ_TRY(auto made, server_tls(certificate.chain_pem, certificate.key_pem));
    const std::lock_guard lock(mutex);
    context = std::move(made);
    return {};
  }

  /// Starts to use the mounted certificate if it changed.
  Status show_mounted() {
    mounted->refused();  // read the files now
    const auto seen = mounted->current();
    if (seen->client_certificate_pem.empty())
      return std::unexpected(Error{ErrorKind::Environment,
                                   "no certificate and key that fit together", options.certificates,
                                   "expected tls.crt and tls.key, as in a Secret of cert-manager"});
    if (seen == taken) return {};
    DSJ_TRY(auto made, server_tls(seen->client_certificate_pem, seen->client_key_pem));
    taken = seen;
    log::info("the webhook has taken the certificate in " + options.certificates);
    const std::lock_guard lock(mutex);
    context = std::move(made);
    return {};
  }

  void run_mounted() {
    tried = true;
    while (!stop.cancelled()) {
      clock.sleep(kLook, stop);
      if (const Status shown = show_mounted(); !shown)
        log::error("webhook: " + shown.error().to_string());
    }
  }

  /// Returns true if the bundle is as it should be.
  bool publish() {
    for (int i = 0; i < kConflictsMax; ++i) {
      const auto seen = client.get(configurations(), "", options.configuration, stop);
      if (!seen) return complain(seen.error());
      const json patch = bundle_patch(*seen, [&](const std::string& bundle) {
        return merge_bundle(bundle, options.identity, rotation.wanted(), clock.wall());
      });
      if (patch.is_null()) return true;
      const auto written =
          client.merge_patch(configurations(), "", options.configuration, patch, "", stop);
      if (written) {
        log::info("the webhook's authority is in " + options.configuration);
        return true;
      }
      if (written.error().kind != kube::ApiError::Kind::Conflict) return complain(written.error());
    }
    return false;
  }

  bool complain(const kube::ApiError& error) {
    if (!stop.cancelled() && !complained.exchange(true)) {
      log::warn("jobs are not reviewed before they are stored: " + options.configuration + ": " +
                error.to_string());
    }
    return false;
  }

  void run() {
    for (int failures = 0; !stop.cancelled();) {
      const auto advanced = rotation.advance(clock.wall());
      const bool good = publish();
      tried = true;
      if (good) complained = false;
      const bool another = good && rotation.published(clock.wall());
      const Status shown = !advanced              ? std::unexpected(advanced.error())
                           : *advanced || another ? show()
                                                  : Status();
      if (!shown) log::error("webhook: " + shown.error().to_string());
      failures = good ? 0 : failures + 1;
      clock.sleep(good ? kLook : kube::backoff(failures, clock.random()), stop);
    }
  }
};

Result<std::unique_ptr<Webhook>> Webhook::start(WebhookOptions options, kube::Client& client,
                                                kube::Clock& clock,
                                                std::function<void(bool)> reviewed) {
  auto state = std::unique_ptr<State>(new State{.options = options,
                                                .client = client,
                                                .clock = clock,
                                                .rotation = {options.names, options.identity}});
  if (!options.certificates.empty()) {
    state->mounted = std::make_unique<kube::CertificateSource>(
        kube::Access{.client_certificate_file = options.certificates + "/tls.crt",
                     .client_key_file = options.certificates + "/tls.key"});
    DSJ_TRY_STATUS(state->show_mounted());
  } else {
    if (const auto made = state->rotation.advance(clock.wall()); !made)
      return std::unexpected(made.error());
    DSJ_TRY_STATUS(state->show());
  }
  // Longer than the API server's idle time, so that the API server closes connections first.
  const HttpLimits limits{.body_bytes = kReviewBytesMax,
                          .request = Milliseconds(5'000),
                          .idle = Milliseconds(120'000),
                          .connections = 16};
  DSJ_TRY(state->listener,
          HttpListener::open(options.address, limits,
                             std::make_shared<Reviewer>(std::move(reviewed), options),
                             [own = state.get()] {
                               const std::lock_guard lock(own->mutex);
                               return own->context;
                             }));
  state->thread =
      std::thread([own = state.get()] { own->mounted ? own->run_mounted() : own->run(); });
  return std::unique_ptr<Webhook>(new Webhook(std::move(state)));
}

Webhook::Webhook(std::unique_ptr<State> state) : state_(std::move(state)) {}

Webhook::~Webhook() {
  state_->stop.cancel();
  state_->thread.join();
}

int Webhook::port() const {
  return state_->listener->port();
}

bool Webhook::ready() const {
  return state_->tried;
}

}  // namespace dsj::op
