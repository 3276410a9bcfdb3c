// A run's reports besides metrics.jsonl: monitors, breakdowns, profiles, the log lines of
// logging_steps. Only observes the steps. Rank 0 reports; the other ranks only count their
// collectives (comms_logger).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "engine/comm/observed.h"
#include "engine/observe/comms_log.h"
#include "engine/observe/monitor.h"
#include "engine/observe/step_clock.h"
#include "engine/train/inputs/events.h"
#include "engine/train/inputs/inputs.h"
#include "engine/train/state/saving.h"
#include "engine/train/step/evaluate.h"

namespace dsj::train {

/// Returns `group`, or with comms_logger a decorator that counts its calls into `log`, which must
/// outlive it.
std::unique_ptr<comm::Collectives> watched(std::unique_ptr<comm::Collectives> group,
                                           observe::CommsLog& log,
                                           const dsconfig::CommsLoggerConfig& config,
                                           at::Device device);

class Watching {
 public:
  /// Observes `stepper` from now on if a key asks for times. All references must outlive it.
  Watching(Files& files, const Inputs& inputs, Stepper& stepper, const zero::ModelState& state,
           const Events& events, observe::CommsLog& comms, int rank, at::Device device);
  ~Watching();
  Watching(const Watching&) = delete;

  /// Call it before an attempt's first step: opens the monitors, dumps what dump_state asks for.
  Status begin(const Progress& progress);
  /// Call it after each step, with rank 0's report of it; `batch` is one of its micro-batches.
  void after_step(const report::Step& step, const Progress& progress,
                  const models::MicroBatch& batch);
  void after_evaluation(int64_t step, const EvalResult& result, double seconds);
  /// Call it after the last step of an attempt.
  void finish();

 private:
  int64_t print_every() const;
  double epoch(int64_t step) const;
  void note(const std::string& text) const;
  void write(const std::vector<observe::Scalar>& scalars);
  void log_line(const report::Step& step);
  void print_step(const report::Step& step, const Progress& progress);
  void print_memory() const;
  void warn_of_targets(const EvalResult& result);
  void profile_flops(int64_t step, const observe::StepTimes& times,
                     const models::MicroBatch& batch);

  Files& files_;
  const Inputs& in_;
  Stepper& stepper_;
  const zero::ModelState& state_;
  const Events& events_;
  observe::CommsLog& comms_;
  const bool speaks_;
  std::unique_ptr<observe::StepClock> clock_;
  std::vector<std::unique_ptr<observe::Monitor>> monitors_;
  observe::StepTimes interval_times_;
  double interval_seconds_ = 0, logged_loss_ = 0;
  int64_t interval_steps_ = 0, logged_steps_ = 0;
  /// Since the last log: each metric's sum over the steps that have it, and their number.
  std::map<std::string, optim::Tally> logged_metrics_;
  bool warned_of_targets_ = false;
};

}  // namespace dsj::train
