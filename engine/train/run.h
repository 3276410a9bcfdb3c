// One rank's training run, from its environment to its exit code.
//
// DSJ_COLLECTIVE_TIMEOUT_SECONDS: how long joining and each collective may take, in seconds (a
// fraction is allowed). Default 600; a value that is not a number above 0 is bad input. When the
// time is over, the message names the operation, the rank ends with kExitPeerLost, and the attempt
// is over; another attempt may succeed.
#pragma once

namespace dsj::train {

/// Reads the environment and the job file, trains, saves, exports. Returns an exit code of
/// job/contract.h. A failure has been logged and emitted as an event.
int run_rank();

}  // namespace dsj::train
