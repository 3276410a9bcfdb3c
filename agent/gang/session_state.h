// The state of worker 0's agent about its gang, the events that it processes, and its commands.
// session.h changes it.
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

/// Exit code if not all nodes of a run on several machines joined in time.
inline constexpr int kExitNodesMissing = 8;

struct SessionConfig {
  int workers = 1;
  /// The higher of status and attempt file. The first attempt of this session is one higher.
  int64_t last_attempt = 0;
  RestartBudget budget;
  bool operated = false;  ///< an operator replaces lost workers (agent_charges)
  /// A worker that is silent for longer is lost, and its ranks are gone. Longer than worker.h's
  /// lease.
  Time silence{6000};
  /// How long the other ranks may take to end and report after one failed, before SIGKILL.
  Time blame{1000};
  /// The same if a rank ended by SIGKILL: no peer causes that, so the others hardly know more, and
  /// a rank in the middle of a long step would delay the next attempt.
  Time blame_after_kill{300};
  /// How long ranks may take to save after a stop request, before SIGKILL.
  Time grace{600'000};
  /// The attempt hangs if no rank makes progress for this long; sooner if stall.h is sure.
  Time stall{1'800'000};
  /// After a hang, how long the agents may take to collect stacks before SIGKILL.
  Time stacks{3000};
  /// A node's link is too slow below this percentage of the gang's usual rate; 0 disables the
  /// measurement.
  int link_percent = 0;
  /// How long the gang may take to be complete, before the first attempt and between two, if no
  /// operator watches over it. Then the job ends. 0 means no limit.
  Time gather_limit{0};
  /// No attempt starts earlier, because ranks of this agent's predecessor may live until then.
  Time quiet_until{0};
};

/// Why an attempt ended. Names the cause, not the consequences.
struct Failure {
  int64_t attempt = 0;
  int worker = -1;
  int rank = -1;  ///< -1 means the worker as a whole
  int exit_code = 0;
  int signal = 0;
  int64_t step = 0;        ///< the attempt's last reported step
  std::string reason;      ///< from the rank's error event, else RankFailed, Killed ...
  std::string message;     ///< one sentence
  std::string last_words;  ///< the end of the rank's log
  // If the attempt hung, as far as known (job/report/reports.h):
  std::optional<std::string> collective, missing_ranks;
  bool refused = false;  ///< no attempt can help
};

struct Outcome {
  int exit_code = 0;   ///< contract.h
  std::string reason;  ///< Completed, Preempted, StoppedWithoutCheckpoint, BackoffLimitExceeded ...
  std::string message;
  /// Only this agent ends, because its own pod is removed. The others wait for its successor.
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
    int64_t lost_in = 0;         ///< the attempt in which its incarnation was replaced
    bool late = false;           ///< its incarnation joined after the session had finished
    std::string slow_link = {};  ///< sent to this incarnation (Directive::slow_link)
  };

  SessionConfig config;
  Phase phase = Phase::Gathering;
  int64_t attempt = 0;  ///< the newest attempt that may have ranks
  int64_t publishing = 0;
  Time phase_since{0};
  Time not_before{0};  ///< the earliest start of the next attempt
  bool stop_requested = false;
  /// The attempt ends because pods are removed (WorkerReport::departing): all ranks save the same
  /// step, those workers leave, and the others wait for their successors.
  bool yields = false;
  Time stop_since{0};    ///< when the ranks were asked to save and end
  bool killing = false;  ///< in phase Ending: the blame window has passed
  std::string hang;      ///< if phase Ending follows a hang: how long nothing moved
  /// The result of the ranks' looks when the attempt hung, or when peers gave up on a rank.
  std::optional<Stall> stall;
  StallWatch stall_watch;
  /// Where the first rank of `stall` is, from its stack: "rank 2 is in ..."; empty if unknown.
  std::string stall_where;
  StragglerWatch straggler_watch;
  LinkCheck links;
  /// The newest request for stacks in this attempt (Directive::stacks); 0 if none. For a hang it is
  /// the attempt's number.
  int64_t stacks = 0;
  int suspect = -1;      ///< the worker whose report ended the attempt, or -1
  int lost_worker = -1;  ///< the worker whose silence or withdrawal ended it, or -1
  Time last_progress{0};
  Time last_now{0};          ///< of the previous event
  int64_t highest_step = 0;  ///< of this attempt
  int64_t exits_seen = 0;
  int64_t newest_checkpoint = -1;
  RestartBudget account;            ///< the operator's; without one, that of the start
  std::vector<ChargedEnd> charged;  ///< ends that `account` lacks
  RestartBudget budget;             ///< both
  std::string address;              ///< of the store of `attempt`
  int port = 0;
  std::vector<Worker> workers;
  std::vector<int> slots;  ///< [worker], for `publishing` and then `attempt`
  Outcome outcome;
};

/// Number of ranks of the attempt that was published last; 0 before the first.
int world_size(const Session& session);
/// The ranks were asked to save and end: for good, or because a pod is removed.
bool asked_to_stop(const Session& session);
/// The worker's pod is being removed and has not been replaced yet.
bool departs(const Session::Worker& worker);
bool silent(const Session& session, const Session::Worker& worker, Time now);
/// True if no rank of `session.attempt` or older runs or can start on this worker.
bool clear(const Session& session, const Session::Worker& worker, Time now);
void enter(Session& session, Phase phase, Time now);
/// The looks at all ranks of the running attempt, by rank; empty until all workers have answered
/// the newest request.
std::vector<RankLook> looks_of(const Session& session);
/// True if every worker with running ranks has answered the newest request for stacks.
bool have_stacks(const Session& session);
/// Where a rank of the running attempt is, from the newest stacks; empty if unknown.
std::string where_is(const Session& session, int rank);

// ---- events
struct Beat {
  WorkerReport report;
};
/// The reports of one turn, in order of arrival. Processed together, so that the gang is judged
/// once per turn.
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
/// The operator's account of the budget, including all attempts up to this one.
struct Accounted {
  int64_t attempt;
  RestartBudget budget;
};
/// Requests the stacks of all ranks. `request` is higher than all attempts and earlier requests.
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
/// No rank failed: pods are removed. Another attempt follows when their successors have joined.
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
/// The set of stragglers changed; empty if there are none any more.
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
  bool clear = false;  ///< no rank of any attempt runs or can start
};
using Command = std::variant<PublishAttempt, AttemptStarted, AttemptYielded, AttemptFailed,
                             StragglersChanged, LinksMeasured, JobEnded>;
using Commands = std::vector<Command>;

}  // namespace dsj::agent
