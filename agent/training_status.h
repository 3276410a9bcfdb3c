// status.training and status.checkpoint, made from worker 0's reports (reports.h): for status.yaml
// (dsj run) and for the resource alike. Pure. Decimals are strings, as in the resource's schema; a
// value that is not finite is null.
// Tested by: tests/agent/status_book_test.cc
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace dsj::agent {

class TrainingStatus {
 public:
  /// `checkpoint`: what an earlier run left, or null.
  TrainingStatus(int world_size, const nlohmann::json& checkpoint);

  /// Takes one report. `now`: RFC 3339. Unknown kinds are ignored.
  void take(const nlohmann::json& report, const std::string& now);

  const nlohmann::json& training() const { return training_; }      ///< null: nothing yet
  const nlohmann::json& checkpoint() const { return checkpoint_; }  ///< null: nothing yet
  int64_t attempt() const { return attempt_; }
  int64_t step() const { return step_; }
  int64_t world_size() const { return world_size_; }
  std::optional<int64_t> total_steps() const { return total_steps_; }
  std::optional<int64_t> saved_step() const { return saved_step_; }
  /// Estimated from the last steps; nullopt before the second step, or without a total.
  std::optional<double> seconds_left() const;

 private:
  void take_step(const nlohmann::json& report, const std::string& now);
  void take_checkpoint(const nlohmann::json& report, const std::string& now);

  nlohmann::json training_, checkpoint_;
  int64_t world_size_ = 0, attempt_ = 0, step_ = 0, steps_timed_ = 0;
  std::optional<int64_t> total_steps_, saved_step_;
  double seconds_per_step_ = 0;
};

/// The status of a "failure" report: {time, attempt, step, reason, message}, and worker, rank,
/// signal or exitCode, lastWords where they are known.
nlohmann::json failure_of(const nlohmann::json& report, const std::string& now);

}  // namespace dsj::agent
