// The environment of a rank: torchrun's names and ours (contract.h), over what the agent inherited.
// Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace dsj::agent {

struct RankPlace {
  int rank = 0, local_rank = 0, world_size = 1, local_world_size = 1, group_rank = 0;
  std::string master_addr;
  int master_port = 0;
  std::string job_file;
  std::string ds_config;  ///< its file; empty: none
  int event_fd = -1;
  int store_fd = -1;  ///< rank 0 only
  int threads = 1;    ///< OMP_NUM_THREADS, unless the user set it
};

/// "NAME=value" strings, sorted by name. `inherited` as environ has them; DSJ_* of an outer run and
/// torchrun's names in it are replaced or removed.
std::vector<std::string> rank_environment(const std::vector<std::string>& inherited,
                                          const RankPlace& place);

/// CPU cores this process may use: its affinity, less where a cgroup quota (cpu.max: "200000
/// 100000" or "max 100000") allows less. At least 1.
int usable_cores(int affinity_cores, const std::string& cpu_max);

/// Threads per rank: all cores shared among the ranks of this machine, at least 1.
int threads_per_rank(int cores, int ranks_on_host);

}  // namespace dsj::agent
