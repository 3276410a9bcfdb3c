// One trial of `dsj tune`: a short run of the job by `dsj run` in its own folder. A port, so
// that the search can be tested without runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::cli {

struct Trial {
  std::string name;
  std::string folder;                     ///< absolute path; exists, with the job's file
  std::string job_file;                   ///< in the folder
  std::string output;                     ///< the run's output directory, in the folder
  int64_t first_step = 1, last_step = 1;  ///< both are measured
};

struct TrialResult {
  enum class End { Ran, Failed, Interrupted } end = End::Failed;
  std::string failure;  ///< if Failed: the reason, one line
  /// If Ran: seconds of the measured steps.
  std::vector<double> step_seconds;
  double tokens = 0;  ///< in all measured steps, of all ranks
};

class Trials {
 public:
  virtual ~Trials() = default;
  /// Runs the trial to its end. Errors: this machine cannot start it.
  virtual Result<TrialResult> run(const Trial& trial) = 0;
};

/// Reads the measured steps from a run's metrics.jsonl. Failed if a step is missing.
TrialResult measured_steps(const std::string& metrics, int64_t first, int64_t last);

/// Starts `dsj run` as a child with its output in the folder's stdout.log and stderr.log.
/// Ctrl-C and SIGTERM stop the child like a run; the trial is then Interrupted.
class LocalTrials : public Trials {
 public:
  explicit LocalTrials(Files& files) : files_(files) {}
  Result<TrialResult> run(const Trial& trial) override;

 private:
  Files& files_;
};

}  // namespace dsj::cli
