#include "operator/serve/metrics.h"

#include <prometheus/text_serializer.h>

#include "common/json.h"
#include "job/failure_reasons.h"
#include "operator/observe/own_status.h"

namespace dsj::op {
namespace {

constexpr char kPrefix[] = "deepspeedjob_";

const prometheus::Histogram::BucketBoundaries kFast = {0.0001, 0.00025, 0.0005, 0.001, 0.0025,
                                                       0.005,  0.01,    0.05,   0.1,   1};
const prometheus::Histogram::BucketBoundaries kSlow = {1,  2,   5,   10,  20,  30,
                                                       60, 120, 300, 600, 1800};

/// The agents' reason for an attempt in which the ranks stopped reporting steps
/// (agent/gang/conclude.cc).
constexpr char kHang[] = "HangDetected";

// Metrics by their name without the prefix. A family has one metric per set of label values.

auto& counters(prometheus::Registry& registry, const std::string& name, const char* help) {
  return prometheus::BuildCounter().Name(kPrefix + name).Help(help).Register(registry);
}

auto& gauges(prometheus::Registry& registry, const std::string& name, const char* help) {
  return prometheus::BuildGauge().Name(kPrefix + name).Help(help).Register(registry);
}

auto& histogram(prometheus::Registry& registry, const std::string& name, const char* help,
                const prometheus::Histogram::BucketBoundaries& bounds) {
  return prometheus::BuildHistogram()
      .Name(kPrefix + name)
      .Help(help)
      .Register(registry)
      .Add({}, bounds);
}

/// The failures added since `before`: those after the last entry that both have. The history is
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
    : jobs_(gauges(registry_, "jobs", "Jobs by phase.")),
      completed_(counters(registry_, "completed_total", "Jobs that ended, by result and reason.")),
      restarts_(counters(registry_, "restarts_total", "Restarts by reason.")),
      watch_restarts_(
          counters(registry_, "watch_restarts_total", "Lists and watches that failed, by reason.")),
      election_failures_(
          counters(registry_, "election_failures_total",
                   "Reads and writes of the leader's Lease that failed, by reason.")),
      reviews_(counters(registry_, "webhook_requests_total", "Admission reviews of jobs.")),
      time_to_running_(histogram(registry_, "time_to_running_seconds",
                                 "Time from a job's start to its first attempt.", kSlow)),
      reconcile_(histogram(registry_, "reconcile_duration_seconds",
                           "Time of a pass, without requests to the API server.", kFast)),
      queue_wait_(histogram(registry_, "workqueue_wait_seconds",
                            "Time that a job's pass waits in the queue.", kFast)),
      status_patches_(
          counters(registry_, "status_patches_total", "Status writes of the operator.").Add({})),
      objects_created_(
          counters(registry_, "objects_created_total", "Pods and other objects created.").Add({})),
      failed_passes_(
          counters(registry_, "failed_passes_total", "Passes that a failed write ended.").Add({})),
      depth_(gauges(registry_, "workqueue_depth",
                    "Jobs that wait in the queue, delayed ones included.")
                 .Add({})),
      leader_(gauges(registry_, "leader", "1: this process leads.").Add({})),
      pods_(gauges(registry_, "pods", "Pods of jobs in the cache.").Add({})),
      requests_(counters(registry_, "api_requests_total",
                         "Requests to the API server, by verb and the answer's code.")),
      created_(
          counters(registry_, "created_total", "Jobs that the operator saw for the first time.")
              .Add({})),
      hangs_(counters(registry_, "hangs_total",
                      "Attempts that hung: no step, or no report of agent 0, in time.")
                 .Add({})),
      node_failures_(counters(registry_, "node_failures_total",
                              "Workers given up because their node was lost.")
                         .Add({})),
      downtime_(histogram(registry_, "restart_downtime_seconds",
                          "Time from the end of an attempt until the next one runs.", kSlow)) {}

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
    restarts_.Add({{"reason", reason_label(json_text(now.last_failure, "reason"))}})
        .Increment(static_cast<double>(now.restarts.total - old.restarts.total));
  }
  for (const char* result : {"Complete", "Failed"}) {
    if (!is_true(now.conditions, result) || is_true(old.conditions, result)) continue;
    const Condition* condition = find_condition(now.conditions, result);
    completed_.Add({{"result", result}, {"reason", reason_label(condition->reason)}}).Increment();
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
