// What a session (session.h) is told, and what it asks for.
// Tested by: tests/agent/gang/session_test.cc
#pragma once

#include <cstdint>
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
/// What came in one turn, in the order of arrival: the gang is judged once, not once per beat.
struct Beats {
  std::vector<WorkerReport> reports;
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
/// The operator's account of the budget, with all attempts up to this one.
struct Accounted {
  int64_t attempt;
  RestartBudget budget;
};
/// Somebody wants the stacks of all ranks. `request`: a number above all attempts, and above the
/// requests before.
struct StacksWanted {
  int64_t request;
};
struct Tick {};
using Event = std::variant<Beat, Beats, Published, PublishFailed, CheckpointSaved, Accounted,
                           StacksWanted, Tick>;

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
/// Nobody failed: pods are taken away. Another attempt follows when their successors have joined.
struct AttemptYielded {
  int64_t attempt;
  std::string message;
};
struct AttemptFailed {
  Failure failure;
  bool restart;
  Time pause;
  RestartBudget budget;
};
/// Other ranks than before hold up the others. None: nobody does any more.
struct StragglersChanged {
  std::vector<Straggler> stragglers;
};
/// The links between the nodes were measured.
struct LinksMeasured {
  std::string summary;
  std::vector<std::string> told;
};
struct JobEnded {
  Outcome outcome;
  bool clear = false;  ///< no rank of any attempt lives or will be started
};
using Command = std::variant<PublishAttempt, AttemptStarted, AttemptYielded, AttemptFailed,
                             StragglersChanged, LinksMeasured, JobEnded>;
using Commands = std::vector<Command>;

}  // namespace dsj::agent
