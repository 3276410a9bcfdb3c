// What a scraper reads of one agent, in Prometheus' text format, and whether it is alive. Made from
// worker 0's reports; the other agents show their ranks only. Thread-safe.
#pragma once

#include <atomic>
#include <memory>

#include "common/http/http_listener.h"
#include "agent/status_publisher.h"

namespace dsj::agent {

class AgentMetrics final : public HttpHandler {
 public:
  AgentMetrics();
  ~AgentMetrics() override;

  void take(const nlohmann::json& report);
  /// Called each turn of the agent; without one for 30 s /healthz fails.
  void turned(int ranks_running, const StatusPublisher* publisher);
  /// The text of /metrics.
  std::string text() const;

  // GET /metrics, GET /healthz; all else 404 or 405.
  std::optional<HttpAnswer> refuse(const HttpHead& head) override;
  HttpAnswer answer(const HttpHead& head, const std::string& body) override;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
  std::atomic<int64_t> turned_at_;
};

}  // namespace dsj::agent
