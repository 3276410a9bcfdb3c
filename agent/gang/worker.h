// The ranks of one worker, as its own agent decides about them: what to start, signal and report
// after each directive of worker 0's agent (session.h). Pure: takes events and the time, returns
// commands.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "agent/wire/messages.h"

namespace dsj::agent {

struct WorkerConfig {
  int worker = 0;
  int64_t incarnation = 1;
  int slots = 1;
  bool own_codes = false;  ///< the ranks run a user's program (messages.h)
  /// The ranks are killed if worker 0's agent is silent for this long. Shorter than the session's
  /// silence, so that worker 0 never starts an attempt while ranks that it gave up still run.
  Time lease{4000};
  /// The agent exits if it gets no answer for this long.
  Time join_timeout{120'000};
};

// ---- events
/// An answer arrived. `sent_at` is when its beat was sent.
struct Heard {
  Directive directive;
  Time sent_at;
};
struct RankStep {
  int local_rank;
  int64_t step;
};
struct RankPaced {
  int local_rank;
  Pace pace;
};
struct RankError {
  int local_rank;
  std::string reason, message;
};
struct RankExited {
  int local_rank;
  int exit_code;
  int signal;
  std::string last_words;
  bool started = true;  ///< false if it could not be started; the exit code is the agent's
};
/// The result of TakeLook: one look per rank.
struct Looked {
  int64_t look;
  std::vector<RankLook> ranks;
};
/// The result of TakeStacks: one description per rank.
struct StacksTaken {
  int64_t request;
  std::vector<std::string> where;
};
/// The result of MeasureLink.
struct LinkMeasured {
  LinkRate rate;
};
/// The whole job must save and stop.
struct StopSignal {};
/// This worker's pod is being removed. All ranks save the same step, then only this agent leaves.
struct DepartSignal {};
/// Time passed. Only this event ends a lease: after a sleep, messages that arrived meanwhile are
/// processed first.
struct WorkerTick {};
using WorkerEvent = std::variant<Heard, RankStep, RankPaced, RankError, RankExited, Looked,
                                 StacksTaken, LinkMeasured, StopSignal, DepartSignal, WorkerTick>;

// ---- commands
struct LaunchRanks {
  Directive directive;
};
struct SignalRanks {
  int signal;
};
/// Look at every rank and answer with Looked.
struct TakeLook {
  int64_t look;
};
/// Collect the stacks of every rank and answer with StacksTaken. May take seconds.
struct TakeStacks {
  int64_t request;
};
/// Send data to a peer and answer with LinkMeasured. Takes a second at most.
struct MeasureLink {
  LinkOrder order;
};
/// Send the report soon. Without this command a beat is sent after `next_beat`.
struct SendBeat {};
/// No rank is left: send a last beat, then exit.
struct ExitAgent {
  int exit_code;
  std::string why;
};
using WorkerCommand =
    std::variant<LaunchRanks, SignalRanks, TakeLook, TakeStacks, MeasureLink, SendBeat, ExitAgent>;
using WorkerCommands = std::vector<WorkerCommand>;

struct Worker {
  explicit Worker(const WorkerConfig& config_, Time now);

  WorkerConfig config;
  WorkerReport report;  ///< contents of a beat; the sender sets `sequence`
  Time last_heard{0};
  int64_t stacks_asked = 0;  ///< the newest request for stacks
  int64_t link_asked = 0;    ///< the round of the current order; 0 if none
  std::string slow_link;     ///< agent 0's finding about this node's link; empty if none
  bool preempt_sent = false;
  bool kill_sent = false;
  bool finishing = false;
  bool exited = false;
  int exit_code = 0;
  std::string exit_reason;
};

WorkerCommands step(Worker& worker, const WorkerEvent& event, Time now);

}  // namespace dsj::agent
