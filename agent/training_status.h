// status.training and status.checkpoint, folded from worker 0's reports (reports.h): of status.yaml
// (dsj run) and of the resource alike. Pure. Decimals are strings, as the resource's schema has
// them; one that is not finite is null.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace dsj::agent {

class TrainingStatus {
 public:
  /// `checkpoint`: what an earlier run left there, or null.
  TrainingStatus(int world_size, const nlohmann::json& checkpoint);

  /// Takes one report; `now` as RFC 3339. Unknown kinds are left alone.
  void take(const nlohmann::json& report, const std::string& now);

  const nlohmann::json& training() const { return training_; }      ///< null: nothing yet
  const nlohmann::json& checkpoint() const { return checkpoint_; }  ///< null: nothing yet
  int64_t attempt() const { return attempt_; }
  int64_t step() const { return step_; }
  int64_t world_size() const { return world_size_; }
  std::optional<int64_t> total_steps() const { return total_steps_; }
  std::optional<int64_t> saved_step() const { return saved_step_; }
  /// At the pace of the last steps; nothing before the second step or without a total.
  std::optional<double> seconds_left() const;

 private:
  void take_step(const nlohmann::json& report, const std::string& now);
  void take_checkpoint(const nlohmann::json& report, const std::string& now);

  nlohmann::json training_, checkpoint_;
  int64_t world_size_ = 0, attempt_ = 0, step_ = 0, steps_timed_ = 0;
  std::optional<int64_t> total_steps_, saved_step_;
  double seconds_per_step_ = 0;
};

/// {time, attempt, step, reason, message} of a "failure" report, and worker, rank, signal or
/// exitCode, lastWords where they are known.
nlohmann::json failure_of(const nlohmann::json& report, const std::string& now);

}  // namespace dsj::agent
