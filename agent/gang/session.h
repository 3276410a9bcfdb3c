// The gang, as worker 0's agent decides it: who is in, when an attempt starts, what ends it,
// whether another follows, and how the job ends. Pure: events and the time come in, commands go
// out. The caller (agent.h) writes files, opens sockets and carries directives. worker.h is the
// other half: what one worker does about a directive.
//
// What must never happen (tests/agent/gang/session_property_test.cc): ranks of two attempts at once;
// an attempt number that falls or is used twice; Done without exit 0 of every rank of one attempt;
// an attempt after a fatal exit, after a stop request, or beyond the budget.
//
// A pod that is taken away (a drain, an eviction, a deletion) ends an attempt, not the gang: all
// ranks save one step, that pod's agent leaves, the others stay and wait for its successor.
#pragma once

#include <cstdint>

#include "agent/gang/session_state.h"
#include "agent/wire/transport.h"

namespace dsj::agent {

/// Takes one event at `now` and returns what to do about it. `now` never goes back. Call it at
/// least every half second. A longer gap means that this agent itself did not run (it was stopped,
/// or waited for a disk); it does not count as anybody's silence.
Commands step(Session& session, const Event& event, Time now);

/// What worker `worker` must do now. Its agent's `incarnation` may be older than the session's, or
/// newer when its first beat was not taken yet.
Directive directive_for(const Session& session, int worker, int64_t incarnation);
/// The same for callers that go through all workers. `first_rank`: the sum of the slots before `worker`.
Directive directive_for(const Session& session, int worker, int64_t incarnation, int first_rank);
/// All of them, in time linear in the workers.
Board board_of(const Session& session);

}  // namespace dsj::agent
