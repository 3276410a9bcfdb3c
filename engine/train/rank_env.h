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
  int store_fd = -1;   ///< rank 0: the store's listening socket; -1: none
  int event_fd = -1;   ///< -1: no events
  int flight_fd = -1;  ///< memory for the flight log; -1: nobody reads it
  std::string job_file;
  /// DSJ_COLLECTIVE_TIMEOUT_SECONDS: how long joining and each collective may take.
  std::chrono::milliseconds collective_timeout = std::chrono::minutes(10);
};

/// BadInput: names the variable that is missing, not a number, or out of range.
Result<RankEnv> rank_env();

/// DSJ_ISA names a kernel table that this processor has, DSJ_NATIVE_BF16 is 0 or 1, DSJ_PRODUCTS is
/// own or library.
/// BadInput: a value that would otherwise be passed over in silence.
Status check_kernel_switches();

}  // namespace dsj::train
