// The agent's only thread under `dsj run`: it waits for signals, rank events, beats and time, and
// calls the agent's turn (turns.h reads the clock).
// Tested by: tests/run/fake/run_test.cc
#pragma once

#include <string>

#include "agent/config.h"

namespace dsj::agent {

struct LoopOptions {
  std::string config_path;
  int worker = 0;
  int64_t incarnation = 1;
  int report_fd = -1;  ///< for worker 0: pipe for the reports (reports.h); -1 if none
};

/// Runs one agent to its end and returns its exit code (contract.h). SIGTERM, SIGINT and SIGHUP
/// stop the job with a checkpoint.
int run_agent(const LoopOptions& options);

}  // namespace dsj::agent
