#include "operator/serve/metrics_server.h"

#include "common/log.h"
#include "operator/serve/metrics_access.h"
#include "operator/webhook/rotation.h"

namespace dsj::op {
namespace {

/// After construction, used only by the listener's thread.
class OwnCertificate {
 public:
  OwnCertificate(std::string identity, kube::Clock& clock)
      : identity_(std::move(identity)), clock_(clock) {}

  Status renew_if_due() {
    if (context_ && clock_.wall() < not_after_ - kRenewBefore) return {};
    DSJ_TRY(const auto made,
            issue_certificate({"dsj-operator"}, identity_, clock_.wall(), kLifetime));
    DSJ_TRY(context_, server_tls(made.chain_pem, made.key_pem));
    not_after_ = made.not_after;
    return {};
  }

  std::shared_ptr<boost::asio::ssl::context> context() {
    if (const Status renewed = renew_if_due(); !renewed)
      log::error("metrics: " + renewed.error().to_string());
    return context_;
  }

 private:
  const std::string identity_;
  kube::Clock& clock_;
  std::shared_ptr<boost::asio::ssl::context> context_;
  WallTime not_after_{};
};

struct MetricsHandler final : HttpHandler {
  MetricsHandler(kube::Transport& transport, kube::Clock& clock,
                 std::function<std::string()> metrics)
      : access_(transport, clock), metrics_(std::move(metrics)) {}

  std::optional<HttpAnswer> refuse(const HttpHead& head) override {
    if (head.path != "/metrics") return HttpAnswer{404, "/metrics\n"};
    if (head.method != "GET") return HttpAnswer{405, "GET is expected\n"};
    return access_.refuse(head.authorization);
  }

  HttpAnswer answer(const HttpHead&, const std::string&) override {
    return {200, metrics_(), kPrometheusText};
  }

 private:
  MetricsAccess access_;
  const std::function<std::string()> metrics_;
};

}  // namespace

Result<std::unique_ptr<HttpListener>> serve_metrics(const std::string& address,
                                                    const std::string& identity,
                                                    kube::Transport& transport, kube::Clock& clock,
                                                    std::function<std::string()> metrics) {
  auto certificate = std::make_shared<OwnCertificate>(identity, clock);
  DSJ_TRY_STATUS(certificate->renew_if_due());
  return HttpListener::open(address, {},
                            std::make_shared<MetricsHandler>(transport, clock, std::move(metrics)),
                            [certificate] { return certificate->context(); });
}

}  // namespace dsj::op
