// How attempts end: which rank ended one (the one that failed by itself, not those that lost it as a peer), what the ranks'
// exits add up to, and what follows once all of them are gone. Internal to session.h.
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

/// The ranks of the running attempt by their ends.
struct Exits {
  int done = 0, preempted = 0, other = 0, running = 0;
  int first_other = -1;  ///< the worker of the first one in `other`
  int worker_out = -1;   ///< a worker that is gone or has withdrawn from this attempt
  bool own_codes = false;
};
Exits count_exits(const Session& session, Time now);

/// Every rank of the attempt is gone: either the job ends or another attempt follows.
void conclude(Session& session, Time now, Commands& out);

/// Ends this agent's work.
void finish(Session& session, Outcome outcome, Time now, Commands& out);

/// The pod of worker 0 itself is taken away while no rank runs: the other workers wait for its
/// successor.
void hand_over(Session& session, const std::string& message, Time now, Commands& out);

}  // namespace dsj::agent
