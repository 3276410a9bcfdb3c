// What one agent exposes to a scraper in Prometheus' text format, and whether the agent is alive.
// Worker 0's agent fills it from its reports; other agents show only their ranks. Thread-safe.
#pragma once

#include <atomic>
#include <memory>

#include "agent/status/status_publisher.h"
#include "common/http/http_listener.h"

namespace dsj::agent {

class AgentMetrics final : public HttpHandler {
 public:
  AgentMetrics();
  ~AgentMetrics() override;

  void take(const report::Report& report);
  /// Number of problems that the last check of this worker's node found.
  void node_problems(size_t count);
  /// Call on each turn of the agent. After 30 s without a call /healthz fails.
  void turned(int ranks_running, const StatusPublisher* publisher);
  /// The text of /metrics.
  std::string text() const;

  // Answers GET /metrics and GET /healthz; all else gets 404 or 405.
  std::optional<HttpAnswer> refuse(const HttpHead& head) override;
  HttpAnswer answer(const HttpHead& head, const std::string& body) override;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
  std::atomic<int64_t> turned_at_;
};

}  // namespace dsj::agent
