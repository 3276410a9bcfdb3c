// Child processes of this machine: start, signal, reap. Used by the agent for ranks and by `dsj
// run` for agents. Every child leads a process group of its own and dies with its parent, so that
// no process stays behind however the parent ends. Call from one thread that lives as long as the
// process (the death signal follows the thread).
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::agent {

struct SpawnSpec {
  std::vector<std::string> command;      ///< [0] is a path, or a name looked up in PATH
  std::vector<std::string> environment;  ///< "NAME=value", the whole of it
  std::string log_file;                  ///< takes stdout and stderr, appended; empty: inherited
  std::vector<int> keep_fds;             ///< inherited under the same numbers; all others close
  int death_signal = 9;                  ///< sent to the child when its parent is gone
};

/// The file that a command's first word starts: itself when it has a slash, else the first in
/// `folders` (as PATH has them).
std::optional<std::string> find_program(const std::string& name, const std::string& folders);

/// Starts a child; stdin is /dev/null. Environment error with the reason when it cannot be started,
/// a program that does not exist included.
Result<pid_t> spawn(const SpawnSpec& spec);

struct ChildExit {
  int exit_code = 0;
  int signal = 0;  ///< 0: it ended by itself
};
/// The end of `pid`, nothing while it runs. What is left of its process group is killed.
std::optional<ChildExit> reap(pid_t pid);

/// Collects dead children that nobody waits for: what a rank left behind comes to its agent when
/// that is the first process of a container. `ours`: those that reap() is called for.
void bury_orphans(const std::function<bool(pid_t)>& ours);

/// To the whole group of a child; one that is gone is fine.
void signal_group(pid_t pid, int signal);

/// This process's environment.
std::vector<std::string> inherited_environment();

/// Blocks `signals` in this thread and threads started later, and returns a signalfd that reads
/// them.
Result<int> signal_fd(const std::vector<int>& signals);
/// The signals that have arrived on a signalfd.
std::vector<int> read_signals(int fd);

/// The last `bytes_max` bytes of a file from `from` on, cut to whole lines; empty when unreadable.
std::string tail_of(const std::string& path, int64_t from, size_t bytes_max);
/// 0 when it does not exist.
int64_t size_of(const std::string& path);

}  // namespace dsj::agent
