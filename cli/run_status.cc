#include "cli/run_status.h"

#include <algorithm>

#include "common/contract.h"
#include "common/jobspec/yaml.h"
#include "common/text.h"

namespace dsj::cli {
namespace {

using nlohmann::json;
using namespace dsj::contract;

constexpr size_t kHistoryMax = 10;

int64_t whole(const json& object, const char* key, int64_t otherwise = 0) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}
std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}
}  // namespace

RunStatus::RunStatus(const json& previous, int world_size, int workers, std::string now)
    : training_(world_size, previous.is_object() ? previous.value("checkpoint", json()) : json()) {
  object_ = {{"phase", "Pending"},          {"startTime", now},
             {"worldSize", world_size},     {"workers", "0/" + std::to_string(workers)},
             {"conditions", json::array()}, {"restarts", {{"total", 0}, {"counted", 0}}}};
  if (previous.is_object()) {
    for (const char* key : {"checkpoint", "failureHistory", "attempt"}) {
      if (previous.contains(key)) object_[key] = previous[key];
    }
    if (const std::string start = text_of(previous, "startTime"); !start.empty()) {
      object_["startTime"] = start;
    }
    attempt_ = whole(previous, "attempt");
  }
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

void RunStatus::take(const json& report, const std::string& now) {
  const std::string kind = text_of(report, "report");
  training_.take(report, now);
  if (!training_.training().is_null()) object_["training"] = training_.training();
  if (!training_.checkpoint().is_null()) object_["checkpoint"] = training_.checkpoint();
  if (kind == "attempt") {
    attempt_ = whole(report, "attempt");
    object_["attempt"] = attempt_;
    object_["worldSize"] = whole(report, "worldSize");
    const std::string all = object_["workers"].get<std::string>();
    object_["workers"] = all.substr(all.find('/') + 1) + all.substr(all.find('/'));
    phase("Running");
    condition("Running", true, "AttemptStarted", "attempt " + std::to_string(attempt_), now);
    condition("Restarting", false, "AttemptStarted", "attempt " + std::to_string(attempt_), now);
  } else if (kind == "failure") {
    take_failure(report, now);
  } else if (kind == "end") {
    take_end(report, now);
  }
}

void RunStatus::take_failure(const json& report, const std::string& now) {
  const json failure = agent::failure_of(report, now);
  object_["lastFailure"] = failure;
  json& history = object_["failureHistory"];
  history.push_back(failure);
  while (history.size() > kHistoryMax) history.erase(history.begin());
  object_["restarts"] = {{"total", whole(report, "restartsTotal")},
                         {"counted", whole(report, "restartsUsed")},
                         {"limit", whole(report, "restartLimit")}};
  const std::string reason = text_of(report, "reason"), message = text_of(report, "message");
  condition("Running", false, reason, message, now);
  if (!report.value("restart", false)) return;
  object_["lastRestartTime"] = now;
  phase("Restarting");
  condition("Restarting", true, reason, message, now);
}

void RunStatus::stopping(const std::string& now) {
  phase("Stopping");
  condition("Running", true, "Stopping", "stop requested: all ranks save the same step", now);
}

void RunStatus::take_end(const json& report, const std::string& now) {
  const int64_t code = whole(report, "exitCode", kExitFailed);
  const std::string reason = text_of(report, "reason"), message = text_of(report, "message");
  condition("Running", false, reason, message, now);
  condition("Restarting", false, reason, message, now);
  if (code == kExitPreempted) {
    phase("Interrupted");
    condition("Interrupted", true, reason, message, now);
    return;
  }
  object_["completionTime"] = now;
  const bool complete = code == kExitDone;
  phase(complete ? "Complete" : "Failed");
  condition(complete ? "Complete" : "Failed", true, reason, message, now);
}

std::string status_to_text(const json& status) {
  return jobspec::to_yaml(status);
}

json status_from_text(const std::string& text, const std::string& source) {
  const auto document = jobspec::parse_yaml(text, source);
  return document && document->value.is_object() ? document->value : json(nullptr);
}

}  // namespace dsj::cli
