#include "agent/gang/conclude.h"

#include <algorithm>
#include <csignal>

#include "agent/gang/blame.h"
#include "agent/gang/rank_end.h"
#include "job/attempt_charge.h"
#include "job/contract.h"

namespace dsj::agent {
namespace {

using namespace dsj::contract;
using Worker = Session::Worker;

void count_rank(const RankState& rank, int worker, Exits& exits) {
  exits.own_codes |= rank.own_codes;
  switch (end_of(rank)) {
    case RankEnd::Running:
      ++exits.running;
      return;
    case RankEnd::Done:
      ++exits.done;
      return;
    case RankEnd::Preempted:
      ++exits.preempted;
      return;
    case RankEnd::Stopped:
      exits.worker_out = worker;
      break;
    default:
      break;
  }
  ++exits.other;
  if (exits.first_other < 0) exits.first_other = worker;
}

void conclude_stop(Session& s, const Exits& exits, const std::optional<Failure>& failure, Time now,
                   Commands& out) {
  // The user's own program reports no step, unless it writes our event lines. What it saved when it
  // was asked to leave is not known here.
  const bool told = s.highest_step > 0 && s.newest_checkpoint >= s.highest_step;
  if (exits.own_codes && !told && exits.preempted > 0 && exits.other == 0 && exits.worker_out < 0) {
    return finish(s,
                  {kExitPreempted, "StoppedWithoutCheckpoint",
                   "stopped on request; the program saved what it saves by itself"},
                  now, out);
  }
  // Before the first step there is nothing to save. Ranks leave at once, wherever they are, and
  // those that are hit in a collective have not failed.
  const bool left = exits.preempted > 0 || (failure && failure->signal == SIGTERM);
  if (left && s.highest_step == 0) {
    return finish(s,
                  {kExitPreempted, "StoppedWithoutCheckpoint",
                   "stopped on request before the attempt's first step; nothing new to save"},
                  now, out);
  }
  if (exits.preempted > 0 && exits.other == 0 && exits.worker_out < 0) {
    return finish(s, {kExitPreempted, "Preempted", "stopped on request, all ranks saved one step"},
                  now, out);
  }
  std::string message =
      s.highest_step == 0
          ? "stopped on request before the attempt's first step; nothing new to save"
          : "stopped on request; the ranks had not saved in time and were killed";
  if (failure) {
    out.push_back(AttemptFailed{*failure, false, Time(0), s.budget});
    message = "stopped on request, but not saved: " + failure->message;
  }
  finish(s, {kExitPreempted, "StoppedWithoutCheckpoint", message}, now, out);
}

/// Nobody failed: the ranks ended because pods are taken away.
void conclude_yield(Session& s, const Exits& exits, Time now, Commands& out) {
  std::string who;
  for (size_t w = 0; w < s.workers.size(); ++w) {
    if (!departs(s.workers[w]) && s.workers[w].lost_in != s.attempt) continue;
    who += (who.empty() ? "worker " : ", ") + std::to_string(w);
  }
  const bool all = exits.other == 0 && exits.worker_out < 0;
  const std::string saved = s.highest_step == 0 ? "before the attempt's first step"
                            : all               ? "all ranks saved one step"
                                                : "the ranks had not all saved in time";
  const std::string message = "the pod of " + who + " is taken away; " + saved;
  out.push_back(AttemptYielded{s.attempt, message});
  if (departs(s.workers[0])) return hand_over(s, message, now, out);
  s.not_before = now;
  enter(s, Phase::Gathering, now);
}

}  // namespace

Exits count_exits(const Session& s, Time now) {
  Exits exits;
  for (int w = 0; w < static_cast<int>(s.workers.size()); ++w) {
    const Worker& worker = s.workers[w];
    const auto& report = worker.report;
    if (silent(s, worker, now) || worker.lost_in == s.attempt) exits.worker_out = w;
    if (report.attempt != s.attempt) {
      if (report.fence >= s.attempt) exits.worker_out = w;
      continue;
    }
    for (const auto& rank : report.ranks) count_rank(rank, w, exits);
  }
  return exits;
}

void finish(Session& s, Outcome outcome, Time now, Commands& out) {
  enter(s, Phase::Finished, now);
  s.outcome = outcome;
  const bool all_clear =
      now >= s.config.quiet_until &&
      std::ranges::all_of(s.workers, [&](const Worker& worker) { return clear(s, worker, now); });
  out.push_back(JobEnded{std::move(outcome), all_clear});
}

void hand_over(Session& s, const std::string& message, Time now, Commands& out) {
  finish(s, {kExitPreempted, kReasonPreempted, message, true}, now, out);
}

/// Every rank of the attempt is gone: either the job ends or another attempt follows.
void conclude(Session& s, Time now, Commands& out) {
  const auto culprit = find_culprit(s, now);
  if (culprit && culprit->refused) {
    out.push_back(AttemptFailed{*culprit, false, Time(0), s.budget});
    return finish(s, {culprit->exit_code, culprit->reason, culprit->message}, now, out);
  }
  const Exits exits = count_exits(s, now);
  if (s.stop_requested) return conclude_stop(s, exits, culprit, now, out);
  // A rank that fails while it saves is to blame all the same. A worker that is gone by now was
  // taken, and before the first step there is nothing to save: ranks leave wherever they are.
  const bool taken = !culprit || culprit->rank < 0 || s.highest_step == 0;
  if (s.yields && taken) return conclude_yield(s, exits, now, out);
  const Failure failure = culprit.value_or(
      Failure{.attempt = s.attempt,
              .exit_code = kExitPreempted,
              .step = s.highest_step,
              .reason = "Preempted",
              .message = "the ranks saved and stopped: someone else sent them SIGTERM"});
  const AttemptEnd end = attempt_end_of(failure.worker, failure.rank);
  RestartVerdict verdict{.allowed = true, .budget = s.budget};
  if (charger_of(end, s.config.operated) == Charger::Agent) {
    verdict = charge_restart(s.budget, s.newest_checkpoint);
    s.charged.push_back(s.attempt);
  }
  s.budget = verdict.budget;
  out.push_back(AttemptFailed{failure, verdict.allowed, verdict.pause, verdict.budget});
  if (!verdict.allowed) {
    return finish(s,
                  {kExitFailed, "BackoffLimitExceeded",
                   "no restart is left (backoffLimit " + std::to_string(s.budget.limit) +
                       "): " + failure.message},
                  now, out);
  }
  s.not_before = now + verdict.pause;
  enter(s, Phase::Gathering, now);
}

}  // namespace dsj::agent
