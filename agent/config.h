// The settings of an agent. `dsj run` writes them to a JSON file that only its owner can read,
// because it contains the run's key. In a cluster pod.h makes them.
// Tested by: tests/agent/agent_test.cc
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/gang/session.h"
#include "agent/gang/worker.h"
#include "common/result.h"
#include "job/job_file.h"
#include "job/restart_budget.h"

namespace dsj::agent {

struct AgentConfig {
  JobFile job;  ///< each attempt fills attempt and world_size
  int replicas = 1;
  int slots = 1;
  std::string run_dir;                ///< for this run's small files: endpoint, job files
  std::string key;                    ///< with which agents authenticate themselves
  std::string address = "127.0.0.1";  ///< of worker 0: for other agents and the ranks' store
  int join_port = 0;                  ///< of worker 0, for other agents; 0 means any free port
  std::vector<std::string> rank_command;
  int ranks_on_host = 1;     ///< ranks that share a machine's cores
  int64_t last_attempt = 0;  ///< from the status; the attempt file may be newer
  bool predecessor = false;  ///< an earlier agent of worker 0 may have left ranks running
  RestartBudget budget;
  bool operated = false;  ///< an operator replaces lost workers
  /// launcher: Command. Rank 0 itself listens on the store's port (which is free then) instead of
  /// inheriting the socket; of exit codes only 0 has a meaning (rank_end.h); ds_config is in a
  /// separate file (contract.h: kEnvDsConfig).
  bool user_program = false;
  int link_percent = 0;        ///< SessionConfig; only in a cluster
  Time gather_limit{0};        ///< SessionConfig; only for `dsj run` on several machines
  Time join_timeout{120'000};  ///< a worker without an answer then exits
  Time silence{6000}, lease{4000}, blame{1000}, grace{600'000}, stall{1'800'000};
};

std::string to_text(const AgentConfig& config);
Result<AgentConfig> agent_config_from_text(const std::string& text, const std::string& source);

}  // namespace dsj::agent
