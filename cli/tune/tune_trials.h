// One trial of `dsj tune`: a short run of the job by `dsj run`, in a folder of its own. A port, so that
// the search is tested without runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::cli {

struct Trial {
  std::string name;
  std::string folder;                     ///< absolute; exists; holds the job's file
  std::string job_file;                   ///< in the folder
  std::string output;                     ///< the run's output directory, in the folder
  int64_t first_step = 1, last_step = 1;  ///< measured, both
};

struct TrialResult {
  enum class End { Ran, Failed, Interrupted } end = End::Failed;
  std::string failure;  ///< Failed: why, one line
  /// Ran: of the measured steps.
  std::vector<double> step_seconds;
  double tokens = 0;  ///< of all of them, all ranks
};

class Trials {
 public:
  virtual ~Trials() = default;
  /// Runs it to its end. Error: this machine cannot start it at all.
  virtual Result<TrialResult> run(const Trial& trial) = 0;
};

/// The measured steps of a run's metrics.jsonl. Failed: a step is missing.
TrialResult measured_steps(const std::string& metrics, int64_t first, int64_t last);

/// `dsj run` as a child, its output in the folder's stdout.log and stderr.log. Ctrl-C and SIGTERM stop
/// the child as they stop a run; the trial is then Interrupted.
class LocalTrials : public Trials {
 public:
  explicit LocalTrials(Files& files) : files_(files) {}
  Result<TrialResult> run(const Trial& trial) override;

 private:
  Files& files_;
};

}  // namespace dsj::cli
