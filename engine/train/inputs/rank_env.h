// A rank's environment: torchrun's variables and ours (job/contract.h).
#pragma once

#include <chrono>
#include <string>

#include "common/result.h"

namespace dsj::train {

struct RankEnv {
  int rank = 0, local_rank = 0, world_size = 1;
  int local_world_size = 1;  ///< ranks of this worker
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  int store_fd = -1;   ///< rank 0: the store's listening socket, or -1
  int event_fd = -1;   ///< -1 means no events
  int flight_fd = -1;  ///< memory for the flight log; -1 means no log
  std::string job_file;
  /// DSJ_COLLECTIVE_TIMEOUT_SECONDS: timeout of the join and of each collective.
  std::chrono::milliseconds collective_timeout = std::chrono::minutes(10);
};

/// BadInput: names the variable that is missing, not a number, or out of range.
Result<RankEnv> rank_env();

/// Checks that DSJ_ISA names a kernel table that this CPU supports, DSJ_NATIVE_BF16 is 0 or 1, and
/// DSJ_PRODUCTS is own or library.
/// BadInput for other values, which would otherwise be ignored silently.
Status check_kernel_switches();

}  // namespace dsj::train
