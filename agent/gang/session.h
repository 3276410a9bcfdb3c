// The gang as worker 0's agent decides about it: which workers are in, when an attempt starts and
// ends, whether another one follows, and how the job ends. Pure: takes events and the time, returns
// commands. The caller (agent.h) writes files, opens sockets and sends directives. worker.h is the
// counterpart: how one worker carries out a directive.
//
// Invariants (tests/agent/gang/session_property_test.cc): ranks of two attempts never run at once;
// attempt numbers rise and are never reused; Done requires exit code 0 of every rank of one
// attempt; no attempt follows a fatal exit, a stop request, or the end of the budget.
//
// The removal of a pod (a drain, an eviction, a deletion) ends an attempt, not the gang: all ranks
// save the same step, that pod's agent leaves, and the others wait for its successor.
#pragma once

#include <cstdint>

#include "agent/gang/session_state.h"
#include "agent/wire/transport.h"

namespace dsj::agent {

/// Processes one event at `now` and returns the resulting commands. `now` must not decrease. Call
/// it at least every half second: a longer gap means that this agent itself did not run (it was
/// stopped, or waited for a disk), and does not count as silence of the workers.
Commands step(Session& session, const Event& event, Time now);

/// What worker `worker` must do now. `incarnation` of its agent may be older than the session's, or
/// newer if its first beat was not processed yet.
Directive directive_for(const Session& session, int worker, int64_t incarnation);
/// The same for loops over all workers. `first_rank` is the sum of the slots before `worker`.
Directive directive_for(const Session& session, int worker, int64_t incarnation, int first_rank);
/// The directives for all workers, in time linear in their number.
Board board_of(const Session& session);

}  // namespace dsj::agent
