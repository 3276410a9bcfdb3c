#include "operator/metrics.h"

#include <prometheus/text_serializer.h>

#include "operator/own_status.h"

namespace dsj::op {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;

const prometheus::Histogram::BucketBoundaries kFast = {0.0001, 0.00025, 0.0005, 0.001, 0.0025,
                                                       0.005,  0.01,    0.05,   0.1,   1};
const prometheus::Histogram::BucketBoundaries kSlow = {1,  2,   5,   10,  20,  30,
                                                       60, 120, 300, 600, 1800};

/// The agents' reason for an attempt in which no rank reported a step (agent/gang/blame.cc).
constexpr char kHang[] = "HangDetected";

/// The failures added since `before`: those behind the last entry that both have. History is
/// bounded.
std::vector<Json> new_failures(const OwnStatus& before, const OwnStatus& after) {
  std::vector<Json> fresh;
  for (auto it = after.failure_history.rbegin(); it != after.failure_history.rend(); ++it) {
    if (!before.failure_history.empty() && *it == before.failure_history.back()) break;
    fresh.push_back(*it);
  }
  return fresh;
}

}  // namespace

Metrics::Metrics()
    : jobs_(BuildGauge().Name("deepspeedjob_jobs").Help("Jobs by phase.").Register(registry_)),
      completed_(BuildCounter()
                     .Name("deepspeedjob_completed_total")
                     .Help("Jobs that ended, by result and reason.")
                     .Register(registry_)),
      restarts_(BuildCounter()
                    .Name("deepspeedjob_restarts_total")
                    .Help("Restarts by reason.")
                    .Register(registry_)),
      watch_restarts_(BuildCounter()
                          .Name("deepspeedjob_watch_restarts_total")
                          .Help("Lists and watches that failed, by reason.")
                          .Register(registry_)),
      election_failures_(BuildCounter()
                             .Name("deepspeedjob_election_failures_total")
                             .Help("Reads and writes of the leader's Lease that failed, by reason.")
                             .Register(registry_)),
      reviews_(BuildCounter()
                   .Name("deepspeedjob_webhook_requests_total")
                   .Help("Reviews of jobs before they are stored.")
                   .Register(registry_)),
      time_to_running_(BuildHistogram()
                           .Name("deepspeedjob_time_to_running_seconds")
                           .Help("From a job's start to its first attempt.")
                           .Register(registry_)
                           .Add({}, kSlow)),
      reconcile_(BuildHistogram()
                     .Name("deepspeedjob_reconcile_duration_seconds")
                     .Help("Deciding, without the API server.")
                     .Register(registry_)
                     .Add({}, kFast)),
      queue_wait_(BuildHistogram()
                      .Name("deepspeedjob_workqueue_wait_seconds")
                      .Help("From due to begun.")
                      .Register(registry_)
                      .Add({}, kFast)),
      status_patches_(BuildCounter()
                          .Name("deepspeedjob_status_patches_total")
                          .Help("Status writes of the operator.")
                          .Register(registry_)
                          .Add({})),
      objects_created_(BuildCounter()
                           .Name("deepspeedjob_objects_created_total")
                           .Help("Pods and other objects that were made.")
                           .Register(registry_)
                           .Add({})),
      failed_passes_(BuildCounter()
                         .Name("deepspeedjob_failed_passes_total")
                         .Help("Passes that a write ended.")
                         .Register(registry_)
                         .Add({})),
      depth_(BuildGauge()
                 .Name("deepspeedjob_workqueue_depth")
                 .Help("Keys that wait, later ones included.")
                 .Register(registry_)
                 .Add({})),
      leader_(BuildGauge()
                  .Name("deepspeedjob_leader")
                  .Help("1: this process leads.")
                  .Register(registry_)
                  .Add({})),
      pods_(BuildGauge()
                .Name("deepspeedjob_pods")
                .Help("Pods of jobs in the cache.")
                .Register(registry_)
                .Add({})),
      requests_(BuildCounter()
                    .Name("deepspeedjob_api_requests_total")
                    .Help("Requests to the API server, by verb and the answer's code.")
                    .Register(registry_)),
      created_(BuildCounter()
                   .Name("deepspeedjob_created_total")
                   .Help("Jobs that were taken up.")
                   .Register(registry_)
                   .Add({})),
      hangs_(BuildCounter()
                 .Name("deepspeedjob_hangs_total")
                 .Help("Attempts that hung: no step, or no report of agent 0, in time.")
                 .Register(registry_)
                 .Add({})),
      node_failures_(BuildCounter()
                         .Name("deepspeedjob_node_failures_total")
                         .Help("Workers that were given up with their node.")
                         .Register(registry_)
                         .Add({})),
      downtime_(BuildHistogram()
                    .Name("deepspeedjob_restart_downtime_seconds")
                    .Help("From the end of an attempt to the next one that runs.")
                    .Register(registry_)
                    .Add({}, kSlow)) {}

void Metrics::pass(Milliseconds queued, std::chrono::microseconds decided, const Plan&,
                   const Applied& applied) {
  queue_wait_.Observe(std::chrono::duration<double>(queued).count());
  reconcile_.Observe(std::chrono::duration<double>(decided).count());
  if (applied.status_written) status_patches_.Increment();
  objects_created_.Increment(static_cast<double>(applied.created));
  if (!applied.done) failed_passes_.Increment();
}

void Metrics::transition(const JobView& before, const Plan& plan) {
  const OwnStatus old = own_status_from_json(before.own_status);
  const OwnStatus now = own_status_from_json(plan.status);
  if (now.restarts.total > old.restarts.total) {
    const std::string reason =
        now.last_failure.is_object() ? now.last_failure.value("reason", "Unknown") : "Unknown";
    restarts_.Add({{"reason", reason}})
        .Increment(static_cast<double>(now.restarts.total - old.restarts.total));
  }
  for (const char* result : {"Complete", "Failed"}) {
    if (!is_true(now.conditions, result) || is_true(old.conditions, result)) continue;
    const Condition* condition = find_condition(now.conditions, result);
    completed_.Add({{"result", result}, {"reason", condition->reason}}).Increment();
  }
  if (old.phase.empty()) created_.Increment();
  for (const Json& failure : new_failures(old, now)) {
    const std::string reason = failure.value("reason", "");
    if (reason == "NodeLost") node_failures_.Increment();
    if (reason == kHang) hangs_.Increment();
  }
  const Condition* progress = find_condition(now.conditions, "Progressing");
  const Condition* before_it = find_condition(old.conditions, "Progressing");
  const bool silent = progress && progress->reason == "NoReport";
  if (silent && !(before_it && before_it->reason == "NoReport")) hangs_.Increment();
  const Condition* was = find_condition(old.conditions, "Running");
  if (was && was->reason == "Restarting" && is_true(now.conditions, "Running")) {
    const Time since = find_condition(now.conditions, "Running")->since;
    downtime_.Observe(std::chrono::duration<double>(since - was->since).count());
  }
  const bool first =
      is_true(now.conditions, "Initialized") && !is_true(old.conditions, "Initialized");
  if (first && now.start) {
    const Time since = find_condition(now.conditions, "Initialized")->since;
    time_to_running_.Observe(std::chrono::duration<double>(since - *now.start).count());
  }
}

void Metrics::requested(const std::string& verb, const std::string& code) {
  requests_.Add({{"verb", verb}, {"code", code}}).Increment();
}

void Metrics::watch_failed(const std::string& reason) {
  watch_restarts_.Add({{"reason", reason}}).Increment();
}

void Metrics::election_failed(const std::string& reason) {
  election_failures_.Add({{"reason", reason}}).Increment();
}

void Metrics::reviewed(bool allowed) {
  reviews_.Add({{"allowed", allowed ? "true" : "false"}}).Increment();
}

std::string Metrics::text(const Cache& cache, const Queue& queue, bool leads) {
  const auto phases = cache.phases();
  for (const char* phase : {"Pending", "Starting", "Running", "Restarting", "Suspending",
                            "Suspended", "Refused", "Complete", "Failed"}) {
    const auto found = phases.find(phase);
    jobs_.Add({{"phase", phase}})
        .Set(found == phases.end() ? 0.0 : static_cast<double>(found->second));
  }
  depth_.Set(static_cast<double>(queue.depth()));
  leader_.Set(leads ? 1 : 0);
  pods_.Set(static_cast<double>(cache.pods()));
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

}  // namespace dsj::op
