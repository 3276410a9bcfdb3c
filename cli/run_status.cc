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
/// A decimal as a string; null stays null (a loss that is not finite).
json decimal(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return nullptr;
  return text::number(found->get<double>());
}

}  // namespace

RunStatus::RunStatus(const json& previous, int world_size, int workers, std::string now) {
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
    const auto checkpoint = previous.find("checkpoint");
    if (checkpoint != previous.end() && checkpoint->is_object() &&
        checkpoint->contains("lastSaved") && (*checkpoint)["lastSaved"].is_object()) {
      saved_step_ = whole((*checkpoint)["lastSaved"], "step");
    }
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
  if (kind == "attempt") {
    attempt_ = whole(report, "attempt");
    step_ = steps_timed_ = 0;
    object_["attempt"] = attempt_;
    object_["training"]["attempt"] = attempt_;
    object_["worldSize"] = whole(report, "worldSize");
    const std::string all = object_["workers"].get<std::string>();
    object_["workers"] = all.substr(all.find('/') + 1) + all.substr(all.find('/'));
    phase("Running");
    condition("Running", true, "AttemptStarted", "attempt " + std::to_string(attempt_), now);
    condition("Restarting", false, "AttemptStarted", "attempt " + std::to_string(attempt_), now);
  } else if (kind == "resolved") {
    total_steps_ = whole(report, "total_steps");
    object_["training"]["totalSteps"] = *total_steps_;
    object_["training"]["resolvedConfig"] = report.value("config", json::object());
  } else if (kind == "resumed") {
    step_ = whole(report, "step");
    object_["training"]["step"] = step_;
    object_["checkpoint"]["lastRestored"] = {
        {"step", step_}, {"path", text_of(report, "path")}, {"time", now}};
  } else if (kind == "step") {
    take_step(report, now);
  } else if (kind == "eval") {
    object_["training"]["evalLoss"] = decimal(report, "eval_loss");
    object_["training"]["evalStep"] = whole(report, "step");
  } else if (kind == "memory") {
    object_["training"]["peakBytes"] = report.value("peak", json::object());
  } else if (kind == "checkpoint") {
    saved_step_ = whole(report, "step");
    json saved = {{"step", *saved_step_},
                  {"path", text_of(report, "path")},
                  {"time", now},
                  {"worldSize", object_["worldSize"]}};
    if (report.contains("bytes")) saved["sizeBytes"] = whole(report, "bytes");
    if (report.contains("seconds")) saved["durationSeconds"] = decimal(report, "seconds");
    object_["checkpoint"]["lastSaved"] = saved;
  } else if (kind == "exported") {
    object_["training"]["modelPath"] = text_of(report, "path");
  } else if (kind == "failure") {
    take_failure(report, now);
  } else if (kind == "end") {
    take_end(report, now);
  }
}

void RunStatus::take_step(const json& report, const std::string& now) {
  step_ = whole(report, "step");
  json& training = object_["training"];
  training["step"] = step_;
  training["loss"] = decimal(report, "loss");
  training["learningRate"] = decimal(report, "lr");
  training["gradNorm"] = decimal(report, "grad_norm");
  training["lossScale"] = decimal(report, "loss_scale");
  training["tokensPerSecond"] = decimal(report, "tokens_per_second");
  training["lastUpdatedTime"] = now;
  if (const auto found = report.find("step_seconds"); found != report.end() && found->is_number()) {
    // The first step also pays for what is set up lazily: it does not count.
    const double seconds = found->get<double>();
    ++steps_timed_;
    const double weight = steps_timed_ <= 2 ? 1.0 : std::max(0.05, 1.0 / double(steps_timed_ - 1));
    seconds_per_step_ += weight * (seconds - seconds_per_step_);
  }
  if (!total_steps_ || *total_steps_ <= 0) return;
  training["progressPercentage"] = std::min<int64_t>(100, step_ * 100 / *total_steps_);
  if (const auto left = seconds_left()) {
    training["estimatedRemainingSeconds"] = static_cast<int64_t>(*left + 0.5);
  }
}

std::optional<double> RunStatus::seconds_left() const {
  if (!total_steps_ || steps_timed_ < 2) return std::nullopt;
  return seconds_per_step_ * static_cast<double>(std::max<int64_t>(0, *total_steps_ - step_));
}

void RunStatus::take_failure(const json& report, const std::string& now) {
  json failure = {{"time", now},
                  {"attempt", whole(report, "attempt")},
                  {"step", whole(report, "step")},
                  {"reason", text_of(report, "reason")},
                  {"message", text_of(report, "message")}};
  if (whole(report, "worker", -1) >= 0) failure["worker"] = whole(report, "worker");
  if (whole(report, "rank", -1) >= 0) {
    failure["rank"] = whole(report, "rank");
    if (whole(report, "signal") != 0) {
      failure["signal"] = whole(report, "signal");
    } else {
      failure["exitCode"] = whole(report, "exitCode");
    }
  }
  if (!text_of(report, "lastWords").empty()) failure["lastWords"] = text_of(report, "lastWords");
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
  if (object_.contains("training")) object_["training"].erase("estimatedRemainingSeconds");
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
