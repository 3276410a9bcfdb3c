// The operator's metrics for Prometheus: jobs and restarts, and its own health. No label names a
// job, because the number of jobs is unbounded.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <string>

#include "operator/observe/own_status.h"
#include "operator/serve/controller.h"

namespace dsj::op {

class Metrics final : public Watcher {
 public:
  Metrics();
  void pass(Milliseconds queued, std::chrono::microseconds decided, const Plan& plan,
            const Applied& applied) override;
  void transition(const JobView& before, const Plan& plan) override;
  void watch_failed(const std::string& reason);
  void election_failed(const std::string& reason);
  /// One request to the API server (counted_transport.h).
  void requested(const std::string& verb, const std::string& code);
  /// Call after each answer of the webhook.
  void reviewed(bool allowed);

  /// The metrics in Prometheus' text format, with the current values of the gauges.
  std::string text(const Cache& cache, const Queue& queue, bool leads);

 private:
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Gauge>& jobs_;
  prometheus::Family<prometheus::Counter>& completed_;
  prometheus::Family<prometheus::Counter>& restarts_;
  prometheus::Family<prometheus::Counter>& watch_restarts_;
  prometheus::Family<prometheus::Counter>& election_failures_;
  prometheus::Family<prometheus::Counter>& reviews_;
  prometheus::Histogram& time_to_running_;
  prometheus::Histogram& reconcile_;
  prometheus::Histogram& queue_wait_;
  prometheus::Counter& status_patches_;
  prometheus::Counter& objects_created_;
  prometheus::Counter& failed_passes_;
  prometheus::Gauge& depth_;
  prometheus::Gauge& leader_;
  prometheus::Gauge& pods_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Counter& created_;
  prometheus::Counter& hangs_;
  prometheus::Counter& node_failures_;
  prometheus::Histogram& downtime_;
};

}  // namespace dsj::op
