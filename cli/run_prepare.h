// Everything `dsj run` does before it starts a process: reads the job, checks all that can be
// checked, and only then makes the output directory. Prints what it finds.
#pragma once

#include <string>
#include <vector>

#include "cli/verbs.h"
#include "common/jobspec/job.h"
#include "common/result.h"

namespace dsj::cli {

struct RunArguments {
  bool help = false;
  std::string manifest;                ///< JOB.yaml; empty: a torchrun line
  std::vector<std::string> line;       ///< of the torchrun line
  std::string output;                  ///< --output
  std::vector<std::string> overrides;  ///< --set
};

/// Splits `dsj run`'s own arguments from the torchrun line's.
Result<RunArguments> split_run_arguments(Arguments args);

/// The job with absolute paths, its model found in the Hugging Face cache if it is a hub id. Every
/// problem is printed on stderr, one a line; then the error says how many there were. Nothing was
/// written.
Result<jobspec::Job> prepare_job(const RunArguments& arguments);

/// The lock of an output directory: held by `dsj run` and, through an inherited descriptor, by its
/// agents, until the last of them is gone.
class OutputLock {
 public:
  /// Makes OUT, OUT/checkpoints, OUT/logs and the run directory OUT/.dsj (for the owner only), then
  /// locks. BadInput with the holder's pid when somebody else runs here.
  static Result<OutputLock> take(const std::string& output_dir);
  OutputLock(OutputLock&& other) noexcept;
  OutputLock& operator=(OutputLock&&) = delete;
  ~OutputLock();
  int fd() const { return fd_; }

 private:
  explicit OutputLock(int fd) : fd_(fd) {}
  int fd_;
};

std::string run_directory(const std::string& output_dir);

}  // namespace dsj::cli
