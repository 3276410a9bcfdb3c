// Takes the stacks of processes on a separate thread, because the kernel may block for long, for
// example when a file server does not answer. Used by one thread. The destructor does not wait.
// Tested by: tests/agent/stacks/stack_text_test.cc
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <vector>

#include "agent/stacks/stack_text.h"

namespace dsj::agent {

struct RankPid {
  int rank = 0;
  pid_t pid = 0;
};

class StackTaker {
 public:
  StackTaker();
  ~StackTaker();
  StackTaker(const StackTaker&) = delete;

  /// Returns false, and starts nothing, while an earlier request is running.
  bool start(std::vector<RankPid> ranks);
  /// The result of start(), returned once; nullopt if it is not ready or nothing was requested.
  std::optional<std::vector<RankStacks>> take();

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
  bool busy_ = false;
};

}  // namespace dsj::agent
