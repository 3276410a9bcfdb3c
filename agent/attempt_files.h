// Two files that survive agent 0: the number of the newest attempt, and of the attempt after which
// no rank was left.
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

  /// The larger of the file's number and the numbers in the manifests of the checkpoints beside it,
  /// which may have been copied here without the file. 0 if there is none yet. Environment: the
  /// file cannot be read, or contains no number.
  Result<int64_t> newest() const;
  /// Durable when it returns. Creates the directory.
  Status publish(int64_t attempt);
  /// The attempt after which no rank was left. If it is the newest, a new agent 0 need not wait for
  /// old ranks to end. 0 if there is none or it cannot be read.
  int64_t ended() const;
  Status note_end(int64_t attempt);

 private:
  Files& files_;
  std::string attempt_path_, ended_path_;
};

}  // namespace dsj::agent
