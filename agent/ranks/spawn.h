// Child processes on this machine: start, signal, reap. The agent uses it for ranks, `dsj run` for
// agents. Every child leads its own process group and is killed when its parent dies, so no process
// is left behind. Call it from one thread that lives as long as the process, because the death
// signal is bound to the thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::agent {

struct SpawnSpec {
  std::vector<std::string> command;      ///< [0] is a path, or a name to look up in PATH
  std::vector<std::string> environment;  ///< "NAME=value"; the complete environment
  std::string log_file;                  ///< stdout and stderr are appended; empty means inherited
  std::vector<int> keep_fds;             ///< inherited with the same numbers; all others are closed
  int death_signal = 9;                  ///< sent to the child when its parent dies
};

/// The file that a command's first word runs: the word itself if it contains a slash, else the
/// first match in `folders` (as in PATH).
std::optional<std::string> find_program(const std::string& name, const std::string& folders);

/// Starts a child with stdin from /dev/null. Environment if it cannot be started, for example
/// because the program does not exist.
Result<pid_t> spawn(const SpawnSpec& spec);

struct ChildExit {
  int exit_code = 0;
  int signal = 0;  ///< 0 if no signal ended it
};
/// The end of `pid`, or nullopt while it runs. Kills what is left of its process group.
std::optional<ChildExit> reap(pid_t pid);

/// Reaps dead children that reap() is not called for. If the agent is a container's first process,
/// it inherits the orphans of ranks. `ours` tells whether reap() is called for a child.
void bury_orphans(const std::function<bool(pid_t)>& ours);

/// Signals a child's process group, which may be gone.
void signal_group(pid_t pid, int signal);

/// This process's environment.
std::vector<std::string> inherited_environment();

/// Blocks `signals` in this thread and threads started later. Returns a signalfd that reads them.
Result<int> signal_fd(const std::vector<int>& signals);
/// The signals that have arrived on a signalfd.
std::vector<int> read_signals(int fd);

/// The last `bytes_max` bytes of a file after `from`, cut to whole lines; empty if unreadable.
std::string tail_of(const std::string& path, int64_t from, size_t bytes_max);
/// 0 if the file does not exist.
int64_t size_of(const std::string& path);

}  // namespace dsj::agent
