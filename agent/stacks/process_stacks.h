// The stacks of all threads of a process, as function names, for any program. Never contains values
// or arguments, so no secrets. Needs no debugger in the container.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::agent {

struct StackFrame {
  std::string function;  ///< demangled; empty if unknown
  std::string file;      ///< name of the program or library; empty if unknown
  bool operator==(const StackFrame&) const = default;
};

struct ThreadStack {
  pid_t thread = 0;
  std::string name;                ///< as set by the program
  std::vector<StackFrame> frames;  ///< the innermost first
  std::string problem;             ///< why frames are missing; empty if all are there
  bool operator==(const ThreadStack&) const = default;
};

/// One entry per thread, the main thread first. Blocks for some tenths of a second as a rule, and
/// much longer if the kernel or a remote file system is slow, so run it on a separate thread
/// (stack_taker.h). Environment: the process is gone, or the container does not permit reading it.
Result<std::vector<ThreadStack>> stacks_of(pid_t process);

/// The process and the others in its process group, for a program started by a shell: at most 16.
std::vector<pid_t> group_of(pid_t leader);

}  // namespace dsj::agent
