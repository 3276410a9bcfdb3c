#include "agent/status/status_publisher.h"

#include <ctime>
#include <utility>

#include "common/json.h"
#include "common/log.h"
#include "job/contract.h"
#include "job/report/field_value.h"

namespace dsj::agent {
namespace {

using kube::ApiError;
using nlohmann::json;

/// The fields that the next write needs from the object that this one returned.
json slim(const json& object) {
  const json& training = json_child(json_child(object, "status"), report::kTraining);
  json known = {{"status", {{report::kTraining, json::object()}}}};
  for (const char* name : {"name", "namespace", "uid", "resourceVersion"}) {
    known["metadata"][name] = json_text(json_child(object, "metadata"), name);
  }
  const char* attempt = report::status_name<&report::Attempt::attempt>();
  if (training.contains(attempt)) known["status"][report::kTraining][attempt] = training[attempt];
  known["status"]["restarts"]["attempt"] =
      json_child(json_child(json_child(object, "status"), "restarts"), "attempt");
  return known;
}

}  // namespace

kube::Resource job_resource() {
  return {contract::kGroup, contract::kVersion, contract::kPlural, contract::kKind, true};
}

std::string rfc3339(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

StatusPublisher::StatusPublisher(kube::Client& client, kube::Clock& clock, JobName job,
                                 int world_size, StatusPace pace)
    : client_(client),
      clock_(clock),
      job_(std::move(job)),
      book_(world_size, pace),
      thread_([this] { run(); }) {}

StatusPublisher::~StatusPublisher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  cancel_.cancel();
  wake_.notify_all();
  thread_.join();
}

void StatusPublisher::report(const report::Report& told) {
  {
    const std::lock_guard lock(mutex_);
    book_.take(told, rfc3339(clock_.wall()));
  }
  wake_.notify_all();
}

void StatusPublisher::stopping() {
  const std::lock_guard lock(mutex_);
  book_.stopping();
}

bool StatusPublisher::settled() const {
  const std::lock_guard lock(mutex_);
  return state_ != State::Writing || book_.settled();
}

Time StatusPublisher::refused_for() const {
  const std::lock_guard lock(mutex_);
  return refused_since_ < Time(0) ? Time(0) : clock_.monotonic() - refused_since_;
}

StatusPublisher::Counts StatusPublisher::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void StatusPublisher::run() {
  std::unique_lock lock(mutex_);
  while (!stop_ && state_ == State::Writing) {
    const auto due = book_.due(0.5);
    const Time now = clock_.monotonic();
    if (!due || *due > now) {
      // At most 100 ms, because tests move the clock.
      wake_.wait_for(lock, due ? std::min(*due - now, Time(100)) : Time(100));
      continue;
    }
    book_.began(now);
    lock.unlock();
    Time wait{0};
    int64_t version = 0;
    const Outcome outcome = write(&version, &wait);
    lock.lock();
    settle(outcome, version, wait);
  }
}

StatusPublisher::Outcome StatusPublisher::failed(const ApiError& error, Time* wait) {
  if (error.kind == ApiError::Kind::NotFound) return Outcome::Gone;
  if (error.kind == ApiError::Kind::Conflict && conflicts_in_a_row_ < 5) return Outcome::Conflict;
  if (error.retry_after) *wait = *error.retry_after;
  if (!error.cancelled() && error.to_string() != last_problem_) {
    last_problem_ = error.to_string();
    log::warn("the status is not written, it is tried again: " + last_problem_);
  }
  return error.passing() ? Outcome::Again : Outcome::Refused;
}

/// Returns the new object. If it sets `superseded`, the object has a newer attempt and was not
/// written.
kube::ApiResult<json> StatusPublisher::write_over(const json& current, int64_t* version,
                                                  bool* superseded) {
  std::optional<json> body;
  json resolved;
  {
    const std::lock_guard lock(mutex_);
    if (book_.first()) book_.inherit(current);
    book_.account(current);
    body = status_body(book_.document(), current, book_.first());
    resolved = book_.resolved();
    *version = book_.version();
  }
  *superseded = !body;
  if (!body) return current;
  const auto apply = [&](const json& object, const char* manager) {
    return client_.apply(job_resource(), job_.ns, object,
                         {.manager = manager, .subresource = "status"}, cancel_);
  };
  if (!resolved.is_null()) {
    const auto once = apply(resolved_body(resolved, current), kOnceManager);
    if (!once) return once;
    (*body)["metadata"]["resourceVersion"] =
        json_text(json_child(*once, "metadata"), "resourceVersion");
    const std::lock_guard lock(mutex_);
    book_.resolved_stored();
  }
  return apply(*body, contract::kAgentManager);
}

StatusPublisher::Outcome StatusPublisher::write(int64_t* version, Time* wait) {
  bool superseded = false;
  auto current = std::exchange(known_, std::nullopt);
  if (current) {
    auto written = write_over(*current, version, &superseded);
    if (superseded) return Outcome::Superseded;
    if (written) {
      known_ = slim(*written);
      last_problem_.clear();
      return Outcome::Stored;
    }
    if (written.error().kind != ApiError::Kind::Conflict) return failed(written.error(), wait);
    // Another writer changed it: read it, then write once more.
  }
  auto read = client_.get(job_resource(), job_.ns, job_.name, cancel_);
  if (!read) return failed(read.error(), wait);
  if (json_text(json_child(*read, "metadata"), "uid") != job_.uid) return Outcome::Gone;
  auto written = write_over(*read, version, &superseded);
  if (superseded) return Outcome::Superseded;
  if (!written) return failed(written.error(), wait);
  known_ = slim(*written);
  last_problem_.clear();
  return Outcome::Stored;
}

void StatusPublisher::settle(Outcome outcome, int64_t version, Time wait) {
  const Time now = clock_.monotonic();
  if (outcome != Outcome::Refused) refused_since_ = Time(-1);
  if (outcome == Outcome::Stored || outcome == Outcome::Conflict) failures_in_a_row_ = 0;
  conflicts_in_a_row_ = outcome == Outcome::Conflict ? conflicts_in_a_row_ + 1 : 0;
  switch (outcome) {
    case Outcome::Stored:
      ++counts_.stored;
      return book_.stored(version);
    case Outcome::Conflict:  // another write came first: read again
      ++counts_.conflicts;
      return book_.failed(now, Time(0));
    case Outcome::Superseded:
      state_ = State::Superseded;
      return;
    case Outcome::Gone:
      state_ = State::JobGone;
      return;
    case Outcome::Refused:
      if (refused_since_ < Time(0)) refused_since_ = now;
      [[fallthrough]];
    case Outcome::Again:
      ++counts_.failures;
      book_.failed(now, kube::backoff(++failures_in_a_row_ + 2, clock_.random(), wait));
  }
}

}  // namespace dsj::agent
