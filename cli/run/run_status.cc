#include "cli/run/run_status.h"

#include <utility>

#include "job/report/field_value.h"
#include "job/report/run_end.h"
#include "job/spec/yaml.h"

namespace dsj::cli {
namespace {

using nlohmann::json;

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
  report::set_condition(object_, "Accepted", true, "ConfigResolved",
                        "the job was checked before anything started", now);
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
    report::set_end(object_, *end, now);
  }
}

void RunStatus::take_attempt(const report::Attempt& attempt, const std::string& now) {
  attempt_ = attempt.attempt;
  object_["attempt"] = attempt_;
  object_["worldSize"] = attempt.world_size;
  const std::string all = object_["workers"].get<std::string>();
  object_["workers"] = all.substr(all.find('/') + 1) + all.substr(all.find('/'));
  phase("Running");
  report::set_condition(object_, "Running", true, "AttemptStarted",
                        "attempt " + std::to_string(attempt_), now);
  report::set_condition(object_, "Restarting", false, "AttemptStarted",
                        "attempt " + std::to_string(attempt_), now);
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
  report::set_condition(object_, "Running", false, failure.reason, failure.message, now);
  if (!failure.restart) return;
  object_["lastRestartTime"] = now;
  phase("Restarting");
  report::set_condition(object_, "Restarting", true, failure.reason, failure.message, now);
}

void RunStatus::stopping(const std::string& why, const std::string& now) {
  phase("Stopping");
  report::set_condition(object_, "Running", true, "Stopping", "stop requested: " + why, now);
}

std::string status_to_text(const json& status) {
  return jobspec::to_yaml(status);
}

json status_from_text(const std::string& text, const std::string& source) {
  const auto document = jobspec::parse_yaml(text, source);
  return document && document->value.is_object() ? document->value : json(nullptr);
}

}  // namespace dsj::cli
