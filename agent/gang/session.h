// The gang, as worker 0's agent decides it: who is in, when an attempt starts, what ends it,
// whether another follows, and how the job ends. Pure: events and the time come in, commands go
// out. The caller (agent.h) writes files, opens sockets and carries directives. worker.h is the
// other half: what one worker does about a directive.
//
// What must never happen (tests/agent/gang/session_property_test.cc): ranks of two attempts at once;
// an attempt number that falls or is used twice; Done without exit 0 of every rank of one attempt;
// an attempt after a fatal exit, after a stop request, or beyond the budget.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/gang/session_state.h"
#include "common/result.h"

namespace dsj::agent {

// ---- events
struct Beat {
  WorkerReport report;
};
struct Published {
  int64_t attempt;
  std::string address;
  int port;
};
struct PublishFailed {
  Error error;
};
struct CheckpointSaved {
  int64_t step;
};
struct Tick {};
using Event = std::variant<Beat, Published, PublishFailed, CheckpointSaved, Tick>;

// ---- commands
/// Write the attempt file durably, open the store's socket, then answer with Published.
struct PublishAttempt {
  int64_t attempt;
  int world_size;
};
struct AttemptStarted {
  int64_t attempt;
  int world_size;
};
struct AttemptFailed {
  Failure failure;
  bool restart;
  Time pause;
  RestartBudget budget;
};
struct JobEnded {
  Outcome outcome;
  bool clear = false;  ///< no rank of any attempt lives or will be started
};
using Command = std::variant<PublishAttempt, AttemptStarted, AttemptFailed, JobEnded>;
using Commands = std::vector<Command>;

/// Takes one event at `now` and returns what to do about it. `now` never goes back. Call it at
/// least every half second. A longer gap means that this agent itself did not run (it was stopped,
/// or waited for a disk); it does not count as anybody's silence.
Commands step(Session& session, const Event& event, Time now);

/// What worker `worker` must do now. Its agent's `incarnation` may be older than the session's, or
/// newer when its first beat was not taken yet.
Directive directive_for(const Session& session, int worker, int64_t incarnation);

}  // namespace dsj::agent
