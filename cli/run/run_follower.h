// `dsj run` on machines other than node 0 (run_nodes.h). It waits for node 0's configuration in the
// shared output directory, keeps this node's agent running, and ends with the job. If node 0 starts
// another run (its pod was recreated), it joins that run. Processes, files and time are ports.
#pragma once

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include "agent/config.h"
#include "cli/run/run_agents.h"
#include "cli/run/run_nodes.h"
#include "common/files/files.h"

namespace dsj::cli {

struct FollowerOptions {
  Nodes nodes;
  int slots = 1;  ///< of each node, from this node's line
  std::string output_dir;
  std::string config_file;  ///< node 0's agent_config_file()
  /// Incarnation of the first agent; greater than those of this node's earlier runs.
  int64_t first_life = 1;
  /// How long to wait for a node 0 that does not start or no longer answers. The limit in node
  /// 0's configuration takes precedence.
  RunClock::Time patience{900'000};
};

struct FollowerPorts {
  Agents& agents;
  Files& files;
  const RunClock& clock;
  std::FILE* out = stdout;
  std::FILE* err = stderr;
};

class Follower {
 public:
  Follower(FollowerOptions options, FollowerPorts ports);
  /// Follows the job to its end. Returns `dsj run`'s exit code.
  int run();

 private:
  using Time = RunClock::Time;
  void turn();
  void take_stop();
  void look_for_a_run();
  void start_if_due();
  void reap();
  void lost_node_zero();
  void end(int exit_code, const std::string& told);
  std::string who() const;

  FollowerOptions options_;
  FollowerPorts ports_;
  std::string run_;       ///< the run (JobFile::run) of the newest agent; empty if there was none
  std::string mismatch_;  ///< why the configuration found does not match this line
  int64_t lives_ = 0;     ///< agents started in this run
  int64_t incarnation_ = 0;
  Time waiting_since_;  ///< start of the time without a running or scheduled agent
  std::optional<Time> start_at_, next_look_;
  bool stopping_ = false, gave_up_ = false;
  std::optional<int> exit_code_;
};

}  // namespace dsj::cli
