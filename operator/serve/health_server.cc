#include "operator/serve/health_server.h"

namespace dsj::op {
namespace {

struct HealthHandler final : HttpHandler {
  explicit HealthHandler(HealthAnswers answers) : answers_(std::move(answers)) {}

  std::optional<HttpAnswer> refuse(const HttpHead& head) override {
    const bool metrics = head.path == "/metrics";
    if (metrics && !answers_.metrics)
      return HttpAnswer{404, "metrics: over HTTPS, on their own port\n"};
    if (!metrics && head.path != "/healthz" && head.path != "/readyz") {
      return HttpAnswer{404, "/healthz, /readyz, /metrics\n"};
    }
    if (head.method != "GET") return HttpAnswer{405, "GET is expected\n"};
    return std::nullopt;
  }

  HttpAnswer answer(const HttpHead& head, const std::string&) override {
    if (head.path == "/metrics") return {200, answers_.metrics(), kPrometheusText};
    const std::string why = head.path == "/healthz" ? "" : answers_.not_ready();
    if (why.empty()) return {200, "ok\n"};
    return {503, "not ready: " + why + "\n"};
  }

 private:
  const HealthAnswers answers_;
};

}  // namespace

Result<std::unique_ptr<HttpListener>> serve_health(const std::string& address,
                                                   HealthAnswers answers) {
  return HttpListener::open(address, {}, std::make_shared<HealthHandler>(std::move(answers)));
}

}  // namespace dsj::op
