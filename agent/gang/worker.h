// One worker's ranks, as its own agent decides: what to start, signal and report after each
// directive of worker 0's agent (session.h). Pure: events and the time come in, commands go out.
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
  bool own_codes = false;  ///< the ranks are the user's own program (messages.h)
  /// Ranks are killed when worker 0's agent is silent for so long. Shorter than the session's
  /// silence, so that it never starts an attempt beside ranks that it has given up.
  Time lease{4000};
  /// The agent gives up when nothing answers for so long.
  Time join_timeout{120'000};
};

// ---- events
/// An answer came. `sent_at`: when its beat was sent.
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
  bool started = true;  ///< false: it could not be started; the exit code is the agent's
};
/// The answer to TakeLook: what the ranks show, one each.
struct Looked {
  int64_t look;
  std::vector<RankLook> ranks;
};
/// The answer to TakeStacks: where the ranks are, one text each.
struct StacksTaken {
  int64_t request;
  std::vector<std::string> where;
};
/// The answer to MeasureLink.
struct LinkMeasured {
  LinkRate rate;
};
/// The whole job is to save and stop.
struct StopSignal {};
/// This worker's pod is taken away. All ranks save one step, then only this agent leaves.
struct DepartSignal {};
/// Time passed. Only this event ends a lease: after a sleep, what came meanwhile is taken first.
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
/// Look at every rank, then say so with Looked.
struct TakeLook {
  int64_t look;
};
/// Take the stacks of every rank, then say so with StacksTaken. It may take seconds.
struct TakeStacks {
  int64_t request;
};
/// Send to a peer, then say how fast it was with LinkMeasured. It takes a second at the most.
struct MeasureLink {
  LinkOrder order;
};
/// Send the report soon. Otherwise a beat is sent when `next_beat` is over.
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
  WorkerReport report;  ///< what a beat carries; the sender counts `sequence`
  Time last_heard{0};
  int64_t stacks_asked = 0;  ///< the newest request for stacks
  int64_t link_asked = 0;    ///< the round of the order that is in force; 0: none
  std::string slow_link;     ///< what agent 0 says of this node's link; empty: nothing
  bool preempt_sent = false;
  bool kill_sent = false;
  bool finishing = false;
  bool exited = false;
  int exit_code = 0;
  std::string exit_reason;
};

WorkerCommands step(Worker& worker, const WorkerEvent& event, Time now);

}  // namespace dsj::agent
