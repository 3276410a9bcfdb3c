// How attempts end: what the ranks' exits add up to, and what follows once all of them are gone.
// Internal to session.h.
// Tested by: tests/agent/gang/session_test.cc
#pragma once

#include "agent/gang/session_events.h"

namespace dsj::agent {

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
