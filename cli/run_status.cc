#include "cli/run_status.h"

#include <utility>

#include "job/contract.h"
#include "job/report/told.h"
#include "job/spec/yaml.h"

namespace dsj::cli {
namespace {

using nlohmann::json;
using namespace dsj::contract;

constexpr size_t kHistoryMax = 10;

}  // namespace

RunStatus::RunStatus(const json& previous, int world_size, int workers, std::string now)
    : training_(world_size, json_child(previous, report::kCheckpoint)) {
  object_ = {{"phase", "Pending"},          {"startTime", now},
             {"worldSize", world_size},     {"workers", "0/" + std::to_string(workers)},
             {"conditions", json::array()}, {"restarts", {{"total", 0}, {"counted", 0}}}};
  for (const char* key : {report::kCheckpoint, "failureHistory", "attempt"}) {
    if (const json& kept = json_child(previous, key); !kept.is_null()) object_[key] = kept;
  }
  if (const json& start = json_child(previous, "startTime"); start.is_string() && start != "") {
    object_["startTime"] = start;
  }
  report::value_from_json(json_child(previous, "attempt"), attempt_);
  condition("Accepted", true, "ConfigResolved", "the job was checked before anything started", now);
}

void RunStatus::condition(const char* type, bool value, const std::string& reason,
                          const std::string& message, const std::string& now) {
  const char* status = value ? "True" : "False";
  for (auto& entry : object_["conditions"]) {
    if (entry["type"] != type) continue;
    if (entry["status"] != status) entry["lastTransitionTime"] = now;
    entry["status"] = status;
    entry["reason"] = reason;
    entry["message"] = message;
    return;
  }
  object_["conditions"].push_back({{"type", type},
                                   {"status", status},
                                   {"reason", reason},
                                   {"message", message},
                                   {"lastTransitionTime", now}});
}

void RunStatus::take(const report::Report& told, const std::string& now) {
  training_.take(told, now);
  if (json training = status_json(training_.training()); !training.empty()) {
    object_[report::kTraining] = std::move(training);
  }
  if (!training_.checkpoint().is_null()) object_[report::kCheckpoint] = training_.checkpoint();
  if (const auto* attempt = std::get_if<report::Attempt>(&told)) {
    take_attempt(*attempt, now);
  } else if (const auto* failure = std::get_if<report::Failure>(&told)) {
    take_failure(*failure, now);
  } else if (const auto* end = std::get_if<report::End>(&told)) {
    take_end(*end, now);
  }
}

void RunStatus::take_attempt(const report::Attempt& attempt, const std::string& now) {
  attempt_ = attempt.attempt;
  object_["attempt"] = attempt_;
  object_["worldSize"] = attempt.world_size;
  const std::string all = object_["workers"].get<std::string>();
  object_["workers"] = all.substr(all.find('/') + 1) + all.substr(all.find('/'));
  phase("Running");
  condition("Running", true, "AttemptStarted", "attempt " + std::to_string(attempt_), now);
  condition("Restarting", false, "AttemptStarted", "attempt " + std::to_string(attempt_), now);
}

void RunStatus::take_failure(const report::Failure& failure, const std::string& now) {
  const json record = status_json(record_of(failure, now));
  object_["lastFailure"] = record;
  json& history = object_["failureHistory"];
  history.push_back(record);
  while (history.size() > kHistoryMax) history.erase(history.begin());
  object_["restarts"] = {{"total", failure.restarts_total},
                         {"counted", failure.restarts_used},
                         {"limit", failure.restart_limit}};
  condition("Running", false, failure.reason, failure.message, now);
  if (!failure.restart) return;
  object_["lastRestartTime"] = now;
  phase("Restarting");
  condition("Restarting", true, failure.reason, failure.message, now);
}

void RunStatus::stopping(const std::string& now) {
  phase("Stopping");
  condition("Running", true, "Stopping", "stop requested: all ranks save the same step", now);
}

void RunStatus::take_end(const report::End& end, const std::string& now) {
  condition("Running", false, end.reason, end.message, now);
  condition("Restarting", false, end.reason, end.message, now);
  if (end.exit_code == kExitPreempted) {
    phase("Interrupted");
    condition("Interrupted", true, end.reason, end.message, now);
    return;
  }
  object_["completionTime"] = now;
  const char* how = end.exit_code == kExitDone ? "Complete" : "Failed";
  phase(how);
  condition(how, true, end.reason, end.message, now);
}

std::string status_to_text(const json& status) {
  return jobspec::to_yaml(status);
}

json status_from_text(const std::string& text, const std::string& source) {
  const auto document = jobspec::parse_yaml(text, source);
  return document && document->value.is_object() ? document->value : json(nullptr);
}

}  // namespace dsj::cli
