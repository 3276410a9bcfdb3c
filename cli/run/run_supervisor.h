// Runs `dsj run` while the job runs: starts one agent per worker, follows worker 0's reports,
// writes status.yaml, shows the progress, forwards Ctrl-C, and replaces an agent that dies. It
// corresponds to the operator of a job in a cluster. Processes, files and time are ports;
// tests/cli/run/run_supervisor_test.cc has the fakes.
#pragma once

#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/config.h"
#include "cli/run/run_agents.h"
#include "cli/run/run_progress.h"
#include "cli/run/run_status.h"
#include "common/files/files.h"

namespace dsj::cli {

struct SupervisorOptions {
  agent::AgentConfig config;   ///< written to agent_config_file() before each start of an agent
  int workers_here = 0;        ///< workers on this machine, from worker 0 on; 0 means all
  std::string resume_command;  ///< printed after an interruption
  nlohmann::json previous_status;
  std::vector<std::string> told;  ///< messages of the warnings that were printed before the start
  bool startup_trace = false;     ///< print a table of each attempt's start
  /// Called once, when this run has a checkpoint or has ended; returns warnings. May be empty.
  std::function<std::vector<std::string>()> when_saved = {};
};

struct SupervisorPorts {
  Agents& agents;
  Files& files;
  const RunClock& clock;
  std::FILE* out = stdout;
  std::FILE* err = stderr;
  bool terminal = false;  ///< `out` is a terminal: show a bar that is redrawn in place
};

/// The file that an agent reads its configuration from.
std::string agent_config_file(const agent::AgentConfig& config);
/// The file with the processes' start times (common/startup_trace.h).
std::string startup_file(const agent::AgentConfig& config);
/// Directory of the agents' and ranks' logs.
std::string logs_dir(const agent::AgentConfig& config);

class Supervisor {
 public:
  Supervisor(SupervisorOptions options, SupervisorPorts ports);
  /// Runs the job until all its processes have ended. Returns `dsj run`'s exit code.
  int run();

 private:
  using Time = RunClock::Time;
  struct AgentLife {
    int64_t incarnation = 0;
    std::optional<Time> start_at;  ///< when to start its next life
  };
  struct Outcome {
    int exit_code;  ///< an ExitCode of agents (contract.h)
    std::string reason, message;
  };

  int workers() const { return static_cast<int>(agents_.size()); }
  Status start_agent(int worker);
  Status write_config();
  bool all_gone() const;
  void turn();
  void take_stop(const std::string& why);
  void stop_without_reader();
  void read_reports();
  void take_report(const report::Report& told);
  void reap_agents();
  void agent_died(int worker, const agent::ChildExit& exit);
  void start_due_agents();
  void end(Outcome outcome);
  void kill_agents();
  void tell_saved(const report::Report& told);
  void keep_status(bool now);
  void tell_start();
  ProgressView view() const;
  /// The step of the newest complete checkpoint; that of the reports if none can be listed.
  std::optional<int64_t> newest_checkpoint() const;
  int farewell();

  SupervisorOptions options_;
  SupervisorPorts ports_;
  RunStatus status_;
  Progress progress_;
  std::vector<AgentLife> agents_;
  report::Step last_step_;
  report::LoggedSteps logged_;
  std::string report_bytes_;
  bool stopping_ = false, killed_ = false, status_dirty_ = true, status_failed_ = false;
  std::optional<Time> status_written_, drawn_;
  int64_t start_told_ = 0;  ///< the last attempt whose start was printed
  std::optional<Outcome> outcome_;
  std::optional<Time> kill_at_;
};

}  // namespace dsj::cli
