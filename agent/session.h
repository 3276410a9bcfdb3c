// The gang, decided by worker 0's agent: who is in, when an attempt starts, what ends it, whether
// another follows, and how the job ends. Pure: events and the time come in, commands go out; the
// caller (agent.h) writes files, opens sockets and carries directives. The other half, what one
// worker does about a directive, is worker.h.
//
// What must never happen (session_property_test.cc): ranks of two attempts at once; an attempt
// number that falls or is used twice; Done without exit 0 of every rank of one attempt; an attempt
// after a fatal exit, after a stop request, or beyond the budget.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/messages.h"
#include "common/restart_budget.h"
#include "common/result.h"

namespace dsj::agent {

struct SessionConfig {
  int workers = 1;
  /// max(status, the attempt file): the first attempt here is this + 1.
  int64_t last_attempt = 0;
  RestartBudget budget;
  /// A worker not heard of for so long is lost and its ranks are gone: longer than worker.h's
  /// lease.
  Time silence{6000};
  /// After a rank failed, how long the others may end by themselves and tell why, before SIGKILL.
  Time blame{1000};
  /// How long ranks may take to save after a stop request, before SIGKILL.
  Time grace{600'000};
  /// No rank told a new step or ended for so long: the attempt hangs.
  Time stall{1'800'000};
  /// No attempt before this time: ranks of a predecessor of this agent may live until then.
  Time quiet_until{0};
};

/// Why an attempt ended; names the culprit, not its victims.
struct Failure {
  int64_t attempt = 0;
  int worker = -1;
  int rank = -1;  ///< -1: the worker as a whole
  int exit_code = 0;
  int signal = 0;
  int64_t step = 0;        ///< last step the attempt told
  std::string reason;      ///< one word: of the rank's error event, else RankFailed, Killed ...
  std::string message;     ///< one sentence
  std::string last_words;  ///< end of its log
  bool refused = false;    ///< no attempt can help
};

struct Outcome {
  int exit_code = 0;   ///< contract.h
  std::string reason;  ///< Completed, Preempted, StoppedWithoutCheckpoint, BackoffLimitExceeded,
                       ///< BadInput ...
  std::string message;
};

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
  bool clear = false;  ///< no rank of any attempt lives, nor will one be started
};
using Command = std::variant<PublishAttempt, AttemptStarted, AttemptFailed, JobEnded>;
using Commands = std::vector<Command>;

enum class Phase { Gathering, Publishing, Running, Ending, Finished };

struct Session {
  explicit Session(const SessionConfig& config_, Time now);

  struct Worker {
    bool joined = false;
    WorkerReport report;  ///< the newest of the newest incarnation
    Time last_beat{0};
    Time ghost_until{0};  ///< ranks of a replaced incarnation may live until then
    int64_t lost_in = 0;  ///< the attempt in which it was replaced
    bool late = false;    ///< its incarnation came when the session was finished
  };

  SessionConfig config;
  Phase phase = Phase::Gathering;
  int64_t attempt = 0;  ///< the newest that may have ranks
  int64_t publishing = 0;
  Time phase_since{0};
  Time not_before{0};  ///< of the next attempt
  bool stop_requested = false;
  Time stop_since{0};
  bool killing = false;  ///< Ending: the blame window is over
  std::string hang;      ///< Ending because of a hang: the sentence
  int suspect = -1;      ///< the worker whose report ended the attempt
  int lost_worker = -1;  ///< the worker whose silence or withdrawal ended it
  Time last_progress{0};
  Time last_now{0};          ///< of the previous event
  int64_t highest_step = 0;  ///< of this attempt
  int64_t exits_seen = 0;
  int64_t newest_checkpoint = -1;
  RestartBudget budget;
  std::string address;  ///< store of `attempt`
  int port = 0;
  std::vector<Worker> workers;
  std::vector<int> slots;  ///< of each worker in `publishing` and then in `attempt`
  Outcome outcome;
};

/// Takes one event at `now` and returns what to do about it. `now` never goes back. Call it at
/// least every half second: a longer gap means that this agent itself did not run (it was stopped,
/// or a disk held it up), and is not counted as anybody's silence.
Commands step(Session& session, const Event& event, Time now);

/// What worker `worker` shall do now; its agent of `incarnation` if that is not the current one.
Directive directive_for(const Session& session, int worker, int64_t incarnation);

/// Ranks of the attempt that was last published; 0 before the first.
int world_size(const Session& session);

}  // namespace dsj::agent
