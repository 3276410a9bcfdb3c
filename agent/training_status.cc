#include "agent/training_status.h"

#include <algorithm>

#include "common/contract.h"
#include "common/text.h"

namespace dsj::agent {
namespace {

using nlohmann::json;

int64_t whole(const json& object, const char* key, int64_t otherwise = 0) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}
std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}
json decimal(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return nullptr;
  return text::number(found->get<double>());
}

}  // namespace

TrainingStatus::TrainingStatus(int world_size, const json& checkpoint) : world_size_(world_size) {
  if (!checkpoint.is_object()) return;
  checkpoint_ = checkpoint;
  if (const auto saved = checkpoint.find("lastSaved");
      saved != checkpoint.end() && saved->is_object()) {
    saved_step_ = whole(*saved, "step");
  }
}

void TrainingStatus::take(const json& report, const std::string& now) {
  const std::string kind = text_of(report, "report");
  if (kind == "attempt") {
    attempt_ = whole(report, "attempt");
    world_size_ = whole(report, "worldSize");
    step_ = steps_timed_ = 0;
    training_["attempt"] = attempt_;
  } else if (kind == "resolved") {
    total_steps_ = whole(report, "total_steps");
    training_["totalSteps"] = *total_steps_;
    training_["resolvedConfig"] = report.value("config", json::object());
  } else if (kind == "resumed") {
    step_ = whole(report, "step");
    training_["step"] = step_;
    checkpoint_["lastRestored"] = {
        {"step", step_}, {"path", text_of(report, "path")}, {"time", now}};
  } else if (kind == "step") {
    take_step(report, now);
  } else if (kind == "eval") {
    training_["evalLoss"] = decimal(report, "eval_loss");
    training_["evalStep"] = whole(report, "step");
  } else if (kind == "memory") {
    training_["peakBytes"] = report.value("peak", json::object());
  } else if (kind == "checkpoint") {
    take_checkpoint(report, now);
  } else if (kind == "exported") {
    training_["modelPath"] = text_of(report, "path");
  } else if (kind == "end" &&
             whole(report, "exitCode", contract::kExitFailed) != contract::kExitPreempted) {
    if (training_.is_object()) training_.erase("estimatedRemainingSeconds");
  }
}

void TrainingStatus::take_checkpoint(const json& report, const std::string& now) {
  saved_step_ = whole(report, "step");
  json saved = {{"step", *saved_step_},
                {"path", text_of(report, "path")},
                {"time", now},
                {"worldSize", world_size_}};
  if (report.contains("bytes")) saved["sizeBytes"] = whole(report, "bytes");
  if (report.contains("seconds")) saved["durationSeconds"] = decimal(report, "seconds");
  checkpoint_["lastSaved"] = saved;
}

void TrainingStatus::take_step(const json& report, const std::string& now) {
  step_ = whole(report, "step");
  training_["step"] = step_;
  training_["loss"] = decimal(report, "loss");
  training_["learningRate"] = decimal(report, "lr");
  training_["gradNorm"] = decimal(report, "grad_norm");
  training_["lossScale"] = decimal(report, "loss_scale");
  training_["tokensPerSecond"] = decimal(report, "tokens_per_second");
  training_["lastUpdatedTime"] = now;
  if (const auto found = report.find("step_seconds"); found != report.end() && found->is_number()) {
    // The first step also pays for lazy set-up, so it does not count.
    const double seconds = found->get<double>();
    ++steps_timed_;
    const double weight = steps_timed_ <= 2 ? 1.0 : std::max(0.05, 1.0 / double(steps_timed_ - 1));
    seconds_per_step_ += weight * (seconds - seconds_per_step_);
  }
  if (!total_steps_ || *total_steps_ <= 0) return;
  training_["progressPercentage"] = std::min<int64_t>(100, step_ * 100 / *total_steps_);
  if (const auto left = seconds_left()) {
    training_["estimatedRemainingSeconds"] = static_cast<int64_t>(*left + 0.5);
  }
}

std::optional<double> TrainingStatus::seconds_left() const {
  if (!total_steps_ || steps_timed_ < 2) return std::nullopt;
  return seconds_per_step_ * static_cast<double>(std::max<int64_t>(0, *total_steps_ - step_));
}

json failure_of(const json& report, const std::string& now) {
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
  return failure;
}

}  // namespace dsj::agent
