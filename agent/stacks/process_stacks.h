// Where the threads of a process are: the functions on their stacks, whatever the program. Never a value
// or an argument, so nothing secret. Needs no debugger in the container.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::agent {

struct StackFrame {
  std::string function;  ///< as people write it; empty: not known
  std::string file;      ///< the name of the program or library; empty: not known
  bool operator==(const StackFrame&) const = default;
};

struct ThreadStack {
  pid_t thread = 0;
  std::string name;                ///< as the program called it
  std::vector<StackFrame> frames;  ///< the innermost first
  std::string problem;             ///< why there are no more; empty: these are all
  bool operator==(const ThreadStack&) const = default;
};

/// One entry per thread, the first thread first. Blocks: as a rule some tenths of a second, for as long
/// as the kernel keeps what is asked for, and longer where files are far away; so it has a thread of its
/// own (stack_taker.h). Environment: the process is gone, or the container does not let it be read.
Result<std::vector<ThreadStack>> stacks_of(pid_t process);

/// The process and the others of its process group, as a program that a shell starts: at most 16.
std::vector<pid_t> group_of(pid_t leader);

}  // namespace dsj::agent
