// The lock of an output directory. `dsj run` holds it, and its agents hold it through an
// inherited descriptor, so the kernel releases it when the last of them has ended, for whatever
// reason. It therefore shows whether the writer of status.yaml is alive.
// Tested by: tests/cli/check/run_lock_test.cc, tests/run/fake/run_test.cc
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/result.h"

namespace dsj::cli {

/// The directory for a run's internal files.
std::string run_directory(const std::string& output_dir);

class OutputLock {
 public:
  /// Creates OUT, OUT/checkpoints, OUT/logs and the run directory OUT/.dsj (only for the
  /// owner), then locks. Each node of a run on several machines has its own lock. Errors:
  /// BadInput, with the holder's pid, if another run holds the lock.
  static Result<OutputLock> take(const std::string& output_dir, int node = 0);
  OutputLock(OutputLock&& other) noexcept;
  OutputLock& operator=(OutputLock&&) = delete;
  ~OutputLock();
  int fd() const { return fd_; }

 private:
  explicit OutputLock(int fd) : fd_(fd) {}
  int fd_;
};

/// Whether a run in this output directory was killed: its status says that it is running, but
/// nobody holds the lock. False also if that is unknown: the run is a cluster's, whose pods
/// take no lock, or another user's.
bool was_killed(const std::string& output_dir, const nlohmann::json& status);

}  // namespace dsj::cli
