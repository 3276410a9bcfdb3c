// How attempts end: which rank caused the end (the one that failed by itself, not its peers that
// lost it), what the ranks' exit codes mean together, and what follows once all ranks are gone.
// Used only by session.h.
// Tested by: tests/agent/gang/session_test.cc
#pragma once

#include <optional>
#include <string>

#include "agent/gang/session_state.h"

namespace dsj::agent {

/// Call when every rank of `session.attempt` is gone. nullopt if every rank ended as ordered. Order
/// of suspicion: a rank whose exit says that no attempt can help; a lost worker or a rank that
/// failed by itself, whichever was seen first; a rank that had to be killed because its peers gave
/// up waiting for it (it hung); a rank that lost its peer.
std::optional<Failure> find_culprit(const Session& session, Time now);

/// The ranks of the running attempt, counted by how they ended.
struct Exits {
  int done = 0, preempted = 0, other = 0, running = 0;
  int first_other = -1;  ///< the worker of the first rank in `other`
  int worker_out = -1;   ///< a worker that is gone or will not run this attempt
  bool own_codes = false;
};
Exits count_exits(const Session& session, Time now);

/// Every rank of the attempt is gone: ends the job or prepares another attempt.
void conclude(Session& session, Time now, Commands& out);

/// Ends the session with this outcome.
void finish(Session& session, Outcome outcome, Time now, Commands& out);

/// The pod of worker 0 itself is removed while no rank runs: the other workers wait for its
/// successor.
void hand_over(Session& session, const std::string& message, Time now, Commands& out);

}  // namespace dsj::agent
