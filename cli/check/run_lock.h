// The lock of an output directory. `dsj run` holds it, and through an inherited descriptor its agents do,
// until the last of them is gone: the kernel lets go of it, however they end. So it also tells whether
// the writer of status.yaml lives.
// Tested by: tests/cli/check/run_lock_test.cc, tests/run/fake/run_test.cc
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/result.h"

namespace dsj::cli {

/// Where a run in this output directory keeps what is its own.
std::string run_directory(const std::string& output_dir);

class OutputLock {
 public:
  /// Makes OUT, OUT/checkpoints, OUT/logs and the run directory OUT/.dsj (for the owner only), then
  /// locks. Each node of a run on several machines has a lock of its own. BadInput, with the holder's pid: another run
  /// holds the lock.
  static Result<OutputLock> take(const std::string& output_dir, int node = 0);
  OutputLock(OutputLock&& other) noexcept;
  OutputLock& operator=(OutputLock&&) = delete;
  ~OutputLock();
  int fd() const { return fd_; }

 private:
  explicit OutputLock(int fd) : fd_(fd) {}
  int fd_;
};

/// Whether a run in this output directory ended without a word: its status says that it goes on, and
/// nobody holds the lock. False also where that cannot be known: the run is a cluster's, whose pods take
/// no lock, or it is another user's.
bool was_killed(const std::string& output_dir, const nlohmann::json& status);

}  // namespace dsj::cli
