// Builds status.yaml, in the form of a DeepSpeedJob's .status, from the reports of worker 0's
// agent (job/report/reports.h). Pure: the inputs are reports and the time of day, the result is
// one object, which the caller writes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "job/report/training_status.h"

namespace dsj::cli {

class RunStatus {
 public:
  /// `previous`: the status of an earlier `dsj run` in the same output directory, or null. Its
  /// checkpoint, attempt and failure history are kept.
  RunStatus(const nlohmann::json& previous, int world_size, int workers, std::string now);

  void take(const report::Report& told, const std::string& now);
  /// A stop was requested and the ranks are saving. `why`: a clause.
  void stopping(const std::string& why, const std::string& now);

  const nlohmann::json& object() const { return object_; }

  // For the progress bar; the same numbers as in object().
  int64_t attempt() const { return attempt_; }
  int64_t step() const { return training_.step(); }
  std::optional<int64_t> total_steps() const { return training_.total_steps(); }
  std::optional<int64_t> saved_step() const { return training_.saved_step(); }
  std::optional<double> seconds_left() const { return training_.seconds_left(); }

 private:
  void phase(const char* name) { object_["phase"] = name; }
  void take_attempt(const report::Attempt& attempt, const std::string& now);
  void take_failure(const report::Failure& failure, const std::string& now);

  nlohmann::json object_;
  report::TrainingStatus training_;
  int64_t attempt_ = 0;
};

/// The text of status.yaml.
std::string status_to_text(const nlohmann::json& status);
/// Parses the text of status.yaml; null if it has no status.
nlohmann::json status_from_text(const std::string& text, const std::string& source);

}  // namespace dsj::cli
