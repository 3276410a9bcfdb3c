// Formats stacks for readers. Pure.
#pragma once

#include <string>
#include <vector>

#include "agent/stacks/process_stacks.h"

namespace dsj::agent {

struct RankStacks {
  int rank = 0;
  pid_t pid = 0;
  std::vector<ThreadStack> threads;  ///< of its process, then of those that it started
  std::string problem;               ///< why there are no threads
  bool operator==(const RankStacks&) const = default;
};

/// One line per rank, thread and function. Threads with the same stack are listed together.
std::vector<std::string> lines_of(const RankStacks& rank);

/// Where the main thread is, for a sentence: "in nanosleep < wait < train (thread 77, dsj-train)".
/// Function names without arguments, at most the innermost six known ones. If unknown, the reason.
std::string where_of(const RankStacks& rank);

}  // namespace dsj::agent
