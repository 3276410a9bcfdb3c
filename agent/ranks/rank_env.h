// The environment of a rank: torchrun's variables and ours (contract.h), over the environment that
// the agent inherited. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace dsj::agent {

struct RankPlace {
  int rank = 0, local_rank = 0, world_size = 1, local_world_size = 1, group_rank = 0;
  std::string master_addr;
  std::string
      /// the machine's interface with the agent's address; empty if loopback or unknown
      interface;
  int master_port = 0;
  std::string job_file;
  std::string ds_config;  ///< path of its file; empty if none
  int event_fd = -1;
  int flight_fd = -1;         ///< memory for the flight log; -1 if none
  int store_fd = -1;          ///< for rank 0 only
  int threads = 1;            ///< OMP_NUM_THREADS, unless the user set it
  std::string startup_trace;  ///< kEnvStartupTrace; empty if none
};

/// "NAME=value" strings, sorted by name. If the master has an IPv6 address, NCCL and Gloo get the
/// interface to use: otherwise they choose an IPv4 address, which some pods have only for outgoing
/// traffic (EKS). `inherited` has the format of environ; torchrun's variables and an outer run's
/// DSJ_* in it are replaced or removed.
std::vector<std::string> rank_environment(const std::vector<std::string>& inherited,
                                          const RankPlace& place);

/// Threads per rank: this machine's cores divided among its ranks, at least 1.
int threads_per_rank(int cores, int ranks_on_host);

}  // namespace dsj::agent
