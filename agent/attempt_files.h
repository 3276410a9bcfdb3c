// The two files that outlive agent 0: which attempt was the newest, and after which one no rank was left.
// Tested by: tests/agent/agent_test.cc
#pragma once

#include <cstdint>
#include <string>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::agent {

class AttemptFiles {
 public:
  /// In `output_dir`/checkpoints.
  AttemptFiles(Files& files, const std::string& output_dir);

  /// The larger of the file's number and those in the manifests of the checkpoints beside it, which
  /// may have been copied here without the file. 0: none yet. Environment: the file cannot be read, or
  /// holds no number.
  Result<int64_t> newest() const;
  /// Durable when it returns. Makes the directory.
  Status publish(int64_t attempt);
  /// The attempt after which no rank was left running. If it is the newest, a new agent 0 need not wait until
  /// old ranks have given up. 0: none, or not readable.
  int64_t ended() const;
  Status note_end(int64_t attempt);

 private:
  Files& files_;
  std::string attempt_path_, ended_path_;
};

}  // namespace dsj::agent
