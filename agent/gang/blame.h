// Which rank ended an attempt: the one that failed by itself, not those that lost it as a peer.
// Tested by: tests/agent/gang/session_test.cc
#pragma once

#include <optional>
#include <string>

#include "agent/gang/session_state.h"

namespace dsj::agent {

/// Call when every rank of `session.attempt` is gone. nullopt: every rank did as it was told.
/// Suspects in order: a rank that says that no attempt can help; a lost worker or a rank that
/// failed by itself, whichever was seen first; a rank that had to be killed while its peers gave up
/// on it (it hung); a rank that lost its peer.
std::optional<Failure> find_culprit(const Session& session, Time now);

/// "exit code 1", "signal 9 (Killed)".
std::string describe_exit(int exit_code, int signal);

}  // namespace dsj::agent
