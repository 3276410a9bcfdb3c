// What worker 0's agent knows of its gang, what it is told, and what it asks for. session.h decides by it and changes it.
// Tested by: tests/agent/gang/session_test.cc
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/diagnose/stall.h"
#include "agent/diagnose/straggler_watch.h"
#include "agent/links/link_check.h"
#include "common/result.h"
#include "job/restart_budget.h"

namespace dsj::agent {

/// An agent of a run on several machines ends with it: not all nodes joined within the limit.
inline constexpr int kExitNodesMissing = 8;

struct SessionConfig {
  int workers = 1;
  /// max(status, attempt file). The first attempt of this session is one higher.
  int64_t last_attempt = 0;
  RestartBudget budget;
  bool operated = false;  ///< an operator replaces lost workers (job/attempt_charge.h)
  /// A worker silent for so long is lost and its ranks are gone. Longer than worker.h's lease.
  Time silence{6000};
  /// How long the other ranks may end by themselves and say why, after one failed, before SIGKILL.
  Time blame{1000};
  /// The same where a rank ended by SIGKILL: no peer causes that, so the others hardly know more,
  /// and a rank in the middle of a long step would hold up the next attempt.
  Time blame_after_kill{300};
  /// How long ranks may take to save after a stop request, before SIGKILL.
  Time grace{600'000};
  /// The attempt hangs if no rank moves for so long; sooner where stall.h is sure.
  Time stall{1'800'000};
  /// After a hang, how long the agents may take the stacks of the ranks before SIGKILL.
  Time stacks{3000};
  /// A node's link is too slow below so many percent of the gang's usual rate; 0: links are not measured.
  int link_percent = 0;
  /// How long the gang may take to be complete, before the first attempt and between two, where
  /// nobody else watches over it: then the job ends. 0: no limit.
  Time gather_limit{0};
  /// No attempt starts earlier: ranks of this agent's predecessor may live until then.
  Time quiet_until{0};
};

/// Why an attempt ended. It names the culprit, not the victims.
struct Failure {
  int64_t attempt = 0;
  int worker = -1;
  int rank = -1;  ///< -1: the worker as a whole
  int exit_code = 0;
  int signal = 0;
  int64_t step = 0;        ///< the attempt's last reported step
  std::string reason;      ///< one word: of the rank's error event, else RankFailed, Killed ...
  std::string message;     ///< one sentence
  std::string last_words;  ///< the end of the rank's log
  // Of a hang, as far as it is known (job/report/reports.h):
  std::optional<std::string> collective, missing_ranks;
  bool refused = false;  ///< no attempt can help
};

struct Outcome {
  int exit_code = 0;   ///< contract.h
  std::string reason;  ///< Completed, Preempted, StoppedWithoutCheckpoint, BackoffLimitExceeded ...
  std::string message;
  /// Only this agent ends, because its own pod is taken away. The others wait for its successor.
  bool handed_over = false;
};

enum class Phase { Gathering, Publishing, Running, Ending, Finished };

struct Session {
  explicit Session(const SessionConfig& config_, Time now);

  struct Worker {
    bool joined = false;
    WorkerReport report;  ///< the newest report of the newest incarnation
    Time last_beat{0};
    Time ghost_until{0};         ///< ranks of a replaced incarnation may live until then
    int64_t lost_in = 0;         ///< the attempt in which it was replaced
    bool late = false;           ///< its incarnation came after the session had finished
    std::string slow_link = {};  ///< what this incarnation is told (Directive::slow_link)
  };

  SessionConfig config;
  Phase phase = Phase::Gathering;
  int64_t attempt = 0;  ///< the newest attempt that may have ranks
  int64_t publishing = 0;
  Time phase_since{0};
  Time not_before{0};  ///< the earliest start of the next attempt
  bool stop_requested = false;
  /// The attempt ends because pods are taken away (WorkerReport::departing): all ranks save one
  /// step, those workers leave, and the others wait for their successors.
  bool yields = false;
  Time stop_since{0};    ///< since when the ranks are asked to save and end
  bool killing = false;  ///< phase Ending: the blame window is over
  std::string hang;      ///< phase Ending because of a hang: for how long nothing moved
  /// What the ranks showed when the attempt hung, or when peers gave up on one of them.
  std::optional<Stall> stall;
  StallWatch stall_watch;
  /// Where the rank is that the stall names first, by its stacks: "rank 2 is in ..."; empty: not known.
  std::string stall_where;
  StragglerWatch straggler_watch;
  LinkCheck links;
  /// The newest request for stacks in this attempt (Directive::stacks); 0: none. At a hang it is the
  /// attempt's number.
  int64_t stacks = 0;
  int suspect = -1;      ///< the worker whose report ended the attempt, or -1
  int lost_worker = -1;  ///< the worker whose silence or withdrawal ended it, or -1
  Time last_progress{0};
  Time last_now{0};          ///< of the previous event
  int64_t highest_step = 0;  ///< of this attempt
  int64_t exits_seen = 0;
  int64_t newest_checkpoint = -1;
  RestartBudget budget;
  std::vector<int64_t> charged;  ///< attempts charged here that the operator's account lacks
  std::string address;           ///< of the store of `attempt`
  int port = 0;
  std::vector<Worker> workers;
  std::vector<int> slots;  ///< [worker], for `publishing` and then `attempt`
  Outcome outcome;
};

/// Ranks of the attempt that was published last; 0 before the first.
int world_size(const Session& session);
/// The ranks are asked to save and end: for good, or because a pod is taken away.
bool asked_to_stop(const Session& session);
/// The worker's agent was told that its pod goes, and has not been replaced yet.
bool departs(const Session::Worker& worker);
bool silent(const Session& session, const Session::Worker& worker, Time now);
/// Whether no rank of `session.attempt` or older lives on this worker or will be started there.
bool clear(const Session& session, const Session::Worker& worker, Time now);
void enter(Session& session, Phase phase, Time now);
/// What every rank of the running attempt shows, in order; empty: not all workers have answered the
/// newest request.
std::vector<RankLook> looks_of(const Session& session);
/// Every worker with a rank that runs has answered the newest request for stacks.
bool have_stacks(const Session& session);
/// Where a rank of the running attempt is, by the newest stacks; empty: not known.
std::string where_is(const Session& session, int rank);

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
