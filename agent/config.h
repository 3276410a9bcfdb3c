// What an agent is told when it starts: one JSON file, readable by its owner only (it holds the
// run's key). Written by `dsj run`; in a cluster by the operator and a mounted secret.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/session.h"
#include "agent/worker.h"
#include "common/job_file.h"
#include "common/restart_budget.h"
#include "common/result.h"

namespace dsj::agent {

struct AgentConfig {
  JobFile job;  ///< attempt and world_size are filled per attempt
  int replicas = 1;
  int slots = 1;
  std::string run_dir;                ///< of this run's small files: endpoint, job files
  std::string key;                    ///< what agents prove themselves with
  std::string address = "127.0.0.1";  ///< worker 0's, for the other agents and the ranks' store
  std::vector<std::string> rank_command;
  int ranks_on_host = 1;     ///< share the cores of this machine
  int64_t last_attempt = 0;  ///< of status; the attempt file may know better
  bool predecessor = false;  ///< an earlier agent of worker 0 may have left ranks running
  RestartBudget budget;
  /// launcher: Command. Rank 0 listens itself on the store's port, which is free then, instead of
  /// getting the socket; of exit codes only 0 has a meaning (rank_end.h); ds_config lies in a file
  /// of its own (contract.h: kEnvDsConfig).
  bool user_program = false;
  Time join_timeout{120'000};  ///< a worker gives up when nothing answers for so long
  Time silence{6000}, lease{4000}, blame{1000}, grace{600'000}, stall{1'800'000};
};

std::string to_text(const AgentConfig& config);
Result<AgentConfig> agent_config_from_text(const std::string& text, const std::string& source);

}  // namespace dsj::agent
