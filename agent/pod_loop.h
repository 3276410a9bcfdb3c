// The agent as the first process of a worker's pod. In addition to loop.h it handles what only a
// cluster has: tokens, the job's status, the watch of the job, a copy of the ranks' output on its
// own output, the termination message, metrics, and the duties of process 1 (it reaps orphans and
// forwards signals to the ranks).
// Tested by: tests/run/fake/pod_run_test.cc
#pragma once

#include <string>
#include <vector>

namespace dsj::agent {

struct PodOptions {
  std::string root;                  ///< prefix of all mounted paths; empty in a pod
  std::vector<std::string> command;  ///< launcher: Command: a rank's program and its arguments
};

/// Runs to the end of the job and returns its exit code (contract.h). SIGTERM, SIGINT and SIGHUP
/// stop the job with a checkpoint. SIGUSR1 and SIGUSR2 go to the ranks of a launcher: Command.
int run_pod(const PodOptions& options);

}  // namespace dsj::agent
