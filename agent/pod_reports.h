// Where the reports of a pod's ranks go: the status, the metrics and the log.
// Tested by: tests/run/fake/pod_run_test.cc
#pragma once

#include <optional>

#include "agent/status/agent_metrics.h"
#include "agent/status/reports.h"
#include "agent/status/status_publisher.h"
#include "common/log.h"
#include "job/report/step_line.h"

namespace dsj::agent {

/// Passes reports to the status and the metrics, logged steps to the log, and keeps the last
/// failure for the termination message.
class PodReports final : public Reports {
 public:
  PodReports(StatusPublisher* publisher, AgentMetrics& metrics)
      : publisher_(publisher), metrics_(metrics) {}
  void report(const report::Report& told) override {
    if (const auto* failure = std::get_if<report::Failure>(&told)) last_failure = *failure;
    metrics_.take(told);
    if (const auto line = logged_.take(told)) log::info(step_line(*line));
    if (publisher_) publisher_->report(told);
  }
  bool flush() override { return false; }
  int fd() const override { return -1; }

  std::optional<report::Failure> last_failure;

 private:
  StatusPublisher* publisher_;
  AgentMetrics& metrics_;
  report::LoggedSteps logged_;
};

}  // namespace dsj::agent
