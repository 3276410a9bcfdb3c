// Child processes on this machine: start, signal, reap. The agent uses it for ranks, `dsj run` for
// agents. Every child leads a process group of its own and dies with its parent, so no process
// stays behind however the parent ends. Call it from one thread that lives as long as the process:
// the death signal is bound to the thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::agent {

struct SpawnSpec {
  std::vector<std::string> command;      ///< [0]: a path, or a name to look up in PATH
  std::vector<std::string> environment;  ///< "NAME=value"; all of it
  std::string log_file;                  ///< stdout and stderr are appended; empty: inherited
  std::vector<int> keep_fds;             ///< inherited under the same numbers; all others close
  int death_signal = 9;                  ///< sent to the child when its parent is gone
};

/// The file that a command's first word starts: the word itself if it has a slash, else the first
/// match in `folders` (as in PATH).
std::optional<std::string> find_program(const std::string& name, const std::string& folders);

/// Starts a child; its stdin is /dev/null. Environment, with the reason: it cannot be started, for
/// example because there is no such program.
Result<pid_t> spawn(const SpawnSpec& spec);

struct ChildExit {
  int exit_code = 0;
  int signal = 0;  ///< 0: no signal ended it
};
/// The end of `pid`; nullopt while it runs. Kills what is left of its process group.
std::optional<ChildExit> reap(pid_t pid);

/// Collects dead children that nobody waits for. If the agent is a container's first process, it
/// inherits what a rank leaves behind. `ours`: the children that reap() is called for.
void bury_orphans(const std::function<bool(pid_t)>& ours);

/// Signals a child's whole group. The group may be gone.
void signal_group(pid_t pid, int signal);

/// This process's environment.
std::vector<std::string> inherited_environment();

/// Blocks `signals` in this thread and threads started later. Returns a signalfd that reads them.
Result<int> signal_fd(const std::vector<int>& signals);
/// The signals that have arrived on a signalfd.
std::vector<int> read_signals(int fd);

/// The last `bytes_max` bytes of a file from `from` on, cut to whole lines; empty: unreadable.
std::string tail_of(const std::string& path, int64_t from, size_t bytes_max);
/// 0: it does not exist.
int64_t size_of(const std::string& path);

}  // namespace dsj::agent
