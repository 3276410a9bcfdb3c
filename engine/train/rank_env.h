// The environment of a rank: torchrun's names and ours (common/contract.h).
#pragma once

#include <string>

#include "common/result.h"

namespace dsj::train {

struct RankEnv {
  int rank = 0, local_rank = 0, world_size = 1;
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  int store_fd = -1;  ///< rank 0: the store's listening socket, if the agent made it
  int event_fd = -1;  ///< -1: events are not wanted
  std::string job_file;
};

/// BadInput names the variable that is missing or no number.
Result<RankEnv> rank_env();

}  // namespace dsj::train
