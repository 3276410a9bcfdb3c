// The training run of one rank, from its environment to its exit code.
#pragma once

namespace dsj::train {

/// Reads the environment and the job file, trains, saves, exports. Returns an exit code of
/// common/contract.h; what went wrong was emitted as an event and logged.
int run_rank();

}  // namespace dsj::train
