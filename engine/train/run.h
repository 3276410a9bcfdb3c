// One rank's training run, from its environment to its exit code.
//
// DSJ_COLLECTIVE_TIMEOUT_SECONDS: timeout of the join and of each collective, in seconds (a
// fraction is allowed). Default 600; a value that is not a number above 0 is bad input. On a
// timeout the message names the operation, and the rank exits with kExitPeerLost, which ends the
// attempt; another attempt may succeed.
#pragma once

namespace dsj::train {

/// Reads the environment and the job file, trains, saves, exports. Returns an exit code of
/// job/contract.h. A failure has been logged and emitted as an event.
int run_rank();

}  // namespace dsj::train
