// The agent as the first process of a worker's pod: everything of loop.h, and beside it what only a
// cluster has: tokens, the job's status, the watch of the job, the ranks' output on its own, the
// termination message, metrics, and the duties of process 1 (orphans are collected, signals do what
// they would do to the ranks).
#pragma once

#include <string>
#include <vector>

namespace dsj::agent {

struct PodOptions {
  std::string root;                  ///< before every mounted path; empty in a pod
  std::vector<std::string> command;  ///< launcher: Command: a rank's program and its arguments
};

/// Runs to the end of the job; returns its exit code (contract.h). SIGTERM, SIGINT and SIGHUP stop
/// the job with a checkpoint; SIGUSR1 and SIGUSR2 go to the ranks of a launcher: Command.
int run_pod(const PodOptions& options);

}  // namespace dsj::agent
