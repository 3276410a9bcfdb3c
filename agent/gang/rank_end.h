// Classifies the end of a rank. Our own ranks have distinct exit codes (contract.h). For a user's
// program (launcher: Command), only exit code 0 has a meaning, and after SIGTERM not even that:
// many programs exit with 0 when they are asked to stop. Pure.
#pragma once

#include <string>

#include "agent/wire/messages.h"

namespace dsj::agent {

enum class RankEnd {
  Running,
  Done,
  Preempted,  ///< stopped on request
  LostPeer,   ///< reports that another rank is gone
  Refused,    ///< no attempt can help: bad input, the environment, or NaN or infinity
  Failed,
  Stopped,  ///< killed by its own agent
};

RankEnd end_of(const RankState& rank);

/// "exit code 1", "signal 9 (Killed)".
std::string describe_exit(int exit_code, int signal);

}  // namespace dsj::agent
