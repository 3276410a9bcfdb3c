// Stacks as people read them. Pure.
#pragma once

#include <string>
#include <vector>

#include "agent/stacks/process_stacks.h"

namespace dsj::agent {

struct RankStacks {
  int rank = 0;
  pid_t pid = 0;
  std::vector<ThreadStack> threads;  ///< of its process, then of those that it started
  std::string problem;               ///< why there are none
  bool operator==(const RankStacks&) const = default;
};

/// One line per rank, thread and function. Threads with the same stack stand together.
std::vector<std::string> lines_of(const RankStacks& rank);

/// Where the first thread is, for a sentence: "in nanosleep < wait < train (thread 77, dsj-train)".
/// Functions without arguments, at most the innermost six that have a name. Why not, if that is not
/// known.
std::string where_of(const RankStacks& rank);

}  // namespace dsj::agent
