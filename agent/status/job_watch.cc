#include "agent/status/job_watch.h"

#include <algorithm>
#include <charconv>

#include "agent/status/status_publisher.h"
#include "job/report/field_value.h"
#include "job/stacks_request.h"

namespace dsj::agent {

namespace {

/// The reason of the condition Failed, if it is True.
std::string failure_in(const nlohmann::json& status) {
  const auto& conditions = json_child(status, "conditions");
  if (!conditions.is_array()) return "";
  for (const auto& condition : conditions) {
    if (json_text(condition, "type") != "Failed" || json_text(condition, "status") != "True")
      continue;
    const std::string reason = json_text(condition, "reason");
    return reason.empty() ? "Failed" : reason;
  }
  return "";
}

/// 0 if there is no valid request.
int64_t stacks_request(const nlohmann::json& metadata) {
  const std::string text = json_text(json_child(metadata, "annotations"), kAnnotationStacks);
  int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc{} && end == text.data() + text.size() ? std::max<int64_t>(0, number)
                                                                    : 0;
}

}  // namespace

JobView job_view(const nlohmann::json& job) {
  const auto& metadata = json_child(job, "metadata");
  const auto& status = json_child(job, "status");
  const auto& restarts = json_child(status, "restarts");
  std::optional<RestartBudget> account;
  if (const auto limit = json_whole(restarts, "limit")) {
    account = {.limit = static_cast<int>(*limit),
               .used = static_cast<int>(json_whole(restarts, "counted").value_or(0)),
               .total = static_cast<int>(json_whole(restarts, "total").value_or(0)),
               .saved_step = json_whole(restarts, "savedStep").value_or(-1)};
  }
  const auto timeout = [&](const char* name) -> std::optional<Time> {
    constexpr int64_t kYears = 1'000'000'000;
    const auto seconds = json_whole(json_child(status, "timeouts"), name);
    if (!seconds || *seconds < 1) return std::nullopt;
    return Time(1000 * std::min(*seconds, kYears));
  };
  const auto attempt =
      report::field_value<&report::Attempt::attempt>(json_child(status, report::kTraining));
  const auto& finalizers = json_child(metadata, "finalizers");
  const bool deleted = metadata.contains("deletionTimestamp");
  return {.uid = json_text(metadata, "uid"),
          .suspend = json_flag(json_child(job, "spec"), "suspend"),
          .deleted = deleted,
          .orphaned = deleted && std::ranges::count(finalizers, "orphan") > 0,
          .revision = json_text(status, "revision"),
          .attempt = attempt.value_or(0),
          .failed = failure_in(status),
          .restarts = account,
          .accounted = json_whole(restarts, "attempt").value_or(0),
          .save_timeout = timeout("saveSeconds"),
          .step_timeout = timeout("stepSeconds"),
          .stacks = stacks_request(metadata)};
}

std::string stop_reason(const JobView& view, const std::string& own_revision) {
  if (view.deleted && view.orphaned) return "";
  if (view.deleted) return "the job is being deleted";
  if (view.suspend) return "the job is suspended";
  if (!view.failed.empty()) return "the job has failed: " + view.failed;
  if (!view.revision.empty() && !own_revision.empty() && view.revision != own_revision) {
    return "the job has a new revision, " + view.revision + " in place of " + own_revision;
  }
  return "";
}

Time refusals_taken(const std::optional<JobView>& job, bool leaving) {
  if (job && job->deleted) return Time(0);
  // The operator repairs a manually changed Role within a minute. The message of a pod that leaves
  // is also in its termination message.
  return leaving ? Time(5'000) : Time(60'000);
}

JobWatch::JobWatch(kube::Client& client, kube::Clock& clock, const std::string& ns,
                   const std::string& name)
    : reflector_(client, clock, job_resource(),
                 {.ns = ns, .select = {.field_selector = "metadata.name=" + name}}, *this),
      thread_([this] { reflector_.run(cancel_); }) {}

JobWatch::~JobWatch() {
  cancel_.cancel();
  thread_.join();
}

std::optional<JobView> JobWatch::view() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

void JobWatch::listed(const kube::Json& object) {
  in_list_ = true;
  upserted(object);
}

/// If a list lacks the job, it was deleted while no watch was open. Lists are consistent reads, and
/// the job is older than its pods.
void JobWatch::list_done() {
  const std::lock_guard lock(mutex_);
  if (in_list_) return;
  if (!view_) view_.emplace();
  view_->deleted = true;
}

void JobWatch::upserted(const kube::Json& object) {
  const std::lock_guard lock(mutex_);
  JobView seen = job_view(object);
  // The finalizer is removed before the job is.
  seen.orphaned |= view_ && view_->orphaned && view_->uid == seen.uid;
  view_ = std::move(seen);
}

void JobWatch::deleted(const kube::Json&) {
  const std::lock_guard lock(mutex_);
  if (view_) view_->deleted = true;
}

}  // namespace dsj::agent
