// `dsj run` while the job runs. It starts one agent per worker, follows worker 0's reports, keeps
// status.yaml, shows the progress, passes Ctrl-C on, and replaces an agent that dies. It is to a
// job on this machine what the operator is to a job in a cluster.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "agent/config.h"
#include "agent/spawn.h"
#include "cli/run_progress.h"
#include "cli/run_status.h"
#include "common/result.h"

namespace dsj::cli {

struct SupervisorOptions {
  agent::AgentConfig config;  ///< written to RUN_DIR/agent.json
  std::string agent_program;
  /// Set for agents and ranks, over this process's own variables.
  std::vector<std::pair<std::string, std::string>> environment;
  std::string resume_command;  ///< printed after an interruption
  int lock_fd = -1;            ///< the agents inherit it
  nlohmann::json previous_status;
};

class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options);
  /// Runs the job to its end, when none of its processes is left. Returns `dsj run`'s exit code.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  struct AgentLife {
    pid_t pid = -1;  ///< -1: not running
    int64_t incarnation = 0;
    std::optional<Clock::time_point> start_at;  ///< when to start its next life
  };
  struct Outcome {
    int exit_code;  ///< an agent's ExitCode (contract.h)
    std::string reason, message;
  };

  std::vector<std::string> environment() const;
  Status start_agent(int worker);
  Status write_config();
  bool all_gone() const;
  void turn();
  void wait();
  void take_signals();
  void take_stop();
  void read_reports();
  void take_report(const nlohmann::json& report);
  void show_failure(const nlohmann::json& report);
  void reap_agents();
  void agent_died(int worker, const agent::ChildExit& exit);
  void start_due_agents();
  void end(Outcome outcome);
  void kill_agents();
  void bury_strays();
  void kill_strays();
  void keep_status(bool now);
  ProgressView view() const;
  void say(const std::string& text) { progress_.print(stdout, text); }
  int farewell();

  SupervisorOptions options_;
  RunStatus status_;
  Progress progress_;
  std::vector<AgentLife> agents_;
  nlohmann::json last_step_;
  std::string report_bytes_;
  int report_fd_ = -1, signal_fd_ = -1;
  bool stopping_ = false, killed_ = false, status_dirty_ = true, status_failed_ = false;
  Clock::time_point status_written_{}, drawn_{};
  std::optional<Outcome> outcome_;
  std::optional<Clock::time_point> kill_at_;
};

}  // namespace dsj::cli
