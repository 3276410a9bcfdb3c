// Takes the stacks of processes on a thread of its own: the kernel may keep a question for long, as where
// a file server does not answer. One thread uses it. Whoever drops it does not wait.
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

  /// False: it still takes the ones before, and nothing begins.
  bool start(std::vector<RankPid> ranks);
  /// What start() asked for, once; nullopt: not yet, or nothing was asked for.
  std::optional<std::vector<RankStacks>> take();

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
  bool busy_ = false;
};

}  // namespace dsj::agent
