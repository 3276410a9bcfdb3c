// Builds status.training and status.checkpoint (status.h) from worker 0's reports, for status.yaml
// (`dsj run`) and for the resource. Pure.
#pragma once

#include "job/report/status.h"

namespace dsj::report {

/// Limits of what agent 0 writes into the resource as JSON: the document of its reports, and the resolved ds_config,
/// which it writes once. With the operator's part (operator/observe/own_status.h) a job's status has at most 32 KiB.
inline constexpr size_t kDocumentBytesMax = 5'000, kResolvedBytesMax = 7'500;

class TrainingStatus {
 public:
  /// `checkpoint`: the status.checkpoint of an earlier run, or null.
  TrainingStatus(int64_t world_size, const nlohmann::json& checkpoint);

  /// Updates the status with one report. `now`: RFC 3339.
  void take(const Report& report, const std::string& now);

  const Training& training() const { return training_; }
  const nlohmann::json& checkpoint() const { return checkpoint_; }  ///< null if none yet
  int64_t attempt() const { return attempt_; }
  /// The last step of this attempt.
  int64_t step() const { return step_; }
  int64_t world_size() const { return world_size_; }
  std::optional<int64_t> total_steps() const { return total_steps_; }
  std::optional<int64_t> saved_step() const { return saved_step_; }
  /// Estimated from recent steps; nullopt before the second step, or if the total is unknown.
  std::optional<double> seconds_left() const;

 private:
  void take_step(const Step& step, const std::string& now);
  void take_checkpoint(const Checkpoint& checkpoint, const std::string& now);
  void take_resumed(const Resumed& resumed, const std::string& now);
  void take_damage(Damage damage, const std::string& now);

  Training training_;
  nlohmann::json checkpoint_;
  int64_t world_size_ = 0, attempt_ = 0, step_ = 0, steps_timed_ = 0;
  std::optional<int64_t> total_steps_, saved_step_;
  double seconds_per_step_ = 0;
  bool passed_over_ = false;  ///< this attempt has set damaged checkpoints aside
};

}  // namespace dsj::report
