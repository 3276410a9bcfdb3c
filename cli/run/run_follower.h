// `dsj run` on a machine that is not node 0 (run_nodes.h). It waits for node 0's configuration in the output directory, which all
// nodes share, keeps this node's agent running, and ends as the job ends. When node 0 begins another run (its pod came again), it
// joins that one. Processes, files and time are ports.
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
  int slots = 1;  ///< of each node, by this node's line
  std::string output_dir;
  std::string config_file;  ///< node 0's: agent_config_file()
  /// Incarnation of the first agent; above those of this node's earlier runs.
  int64_t first_life = 1;
  /// How long to wait for a node 0 that does not begin, or does not answer any more. Once node 0's
  /// configuration is there, its limit counts.
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
  std::string run_;       ///< the run (JobFile::run) of the newest agent; empty: there was none
  std::string mismatch_;  ///< why the configuration that is there is not of this line
  int64_t lives_ = 0;     ///< agents started in this run
  int64_t incarnation_ = 0;
  Time waiting_since_;  ///< while no agent runs and none is due
  std::optional<Time> start_at_, next_look_;
  bool stopping_ = false, gave_up_ = false;
  std::optional<int> exit_code_;
};

}  // namespace dsj::cli
