#include "agent/gang/conclude.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <tuple>

#include "agent/diagnose/wait_graph.h"
#include "agent/gang/rank_end.h"
#include "job/contract.h"

namespace dsj::agent {
namespace {

using namespace dsj::contract;

enum Suspicion { kFatal, kOwnFault, kHung, kLostPeer, kInnocent };

Suspicion suspicion_of(const Session& s, const RankState& rank, bool a_peer_gave_up) {
  switch (end_of(rank)) {
    case RankEnd::Running:
    case RankEnd::Done:
    case RankEnd::Preempted:
      return kInnocent;
    case RankEnd::Stopped:
      return a_peer_gave_up ? kHung : kInnocent;
    case RankEnd::LostPeer:
      return asked_to_stop(s) ? kInnocent : kLostPeer;
    case RankEnd::Refused:
      return kFatal;
    case RankEnd::Failed:
      break;
  }
  // SIGTERM arrived before it had a handler, so there was nothing to save.
  return rank.signal == SIGTERM && asked_to_stop(s) ? kInnocent : kOwnFault;
}

std::string default_reason(const RankState& rank, Suspicion suspicion) {
  if (suspicion == kHung) return "HangDetected";
  if (rank.signal != 0) return "Killed";
  switch (end_of(rank)) {
    case RankEnd::Refused:
      return rank.exit_code == kExitBadInput    ? "BadInput"
             : rank.exit_code == kExitNotFinite ? kReasonNotFinite
                                                : "Environment";
    case RankEnd::LostPeer:
      return "PeerLost";
    default:
      return "RankFailed";
  }
}

/// Adds the findings about a hang. If they name no rank, no rank is blamed.
void add_stall(const Session& s, Failure& failure) {
  if (!s.stall) return;
  failure.message += ": " + s.stall->message;
  if (!s.stall->collective.empty()) failure.collective = s.stall->collective;
  if (!s.stall->ranks.empty()) failure.missing_ranks = ranks_list(s.stall->ranks);
  if (!s.stall_where.empty()) failure.message += "; " + s.stall_where;
  if (!s.stall->ranks.empty() || s.hang.empty()) return;
  failure.worker = failure.rank = -1;
  failure.last_words.clear();
}

/// True if the findings about the hang do not include this rank.
bool cleared(const Session& s, int rank) {
  return std::ranges::find(s.stall->ranks, rank) == s.stall->ranks.end();
}

Failure blame_rank(const Session& s, int worker, int number, const RankState& rank,
                   Suspicion suspicion) {
  Failure failure{.attempt = s.attempt,
                  .worker = worker,
                  .rank = number,
                  .exit_code = rank.exit_code,
                  .signal = rank.signal,
                  .step = s.highest_step,
                  .reason = rank.reason.empty() ? default_reason(rank, suspicion) : rank.reason,
                  .last_words = rank.last_words,
                  .refused = suspicion == kFatal};
  failure.message = "rank " + std::to_string(number);
  if (suspicion != kHung) {
    failure.message += " ended with " + describe_exit(rank.exit_code, rank.signal);
  } else if (s.hang.empty()) {
    failure.message += " hung: its peers gave up waiting for it and it had to be killed";
  } else {
    failure.message = s.hang;
  }
  if (!rank.message.empty()) failure.message += ": " + rank.message;
  if (suspicion == kHung) add_stall(s, failure);
  return failure;
}

bool a_peer_gave_up(const Session& s) {
  if (!s.hang.empty()) return true;
  for (const auto& worker : s.workers) {
    if (worker.report.attempt != s.attempt) continue;
    for (const auto& rank : worker.report.ranks) {
      if (end_of(rank) == RankEnd::LostPeer) return true;
    }
  }
  return false;
}

bool lost(const Session& s, int index, Time now) {
  const auto& worker = s.workers[index];
  return now - worker.last_beat > s.config.silence || worker.lost_in == s.attempt ||
         index == s.lost_worker;
}

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
  // A user's program reports no steps unless it writes our event lines, so it is not known what it
  // saved.
  const bool told = s.highest_step > 0 && s.newest_checkpoint >= s.highest_step;
  if (exits.own_codes && !told && exits.preempted > 0 && exits.other == 0 && exits.worker_out < 0) {
    return finish(s,
                  {kExitPreempted, "StoppedWithoutCheckpoint",
                   "stopped on request; saving is up to the program"},
                  now, out);
  }
  // Before the first step there is nothing to save. Ranks exit immediately, and those that lose a
  // peer in a collective then have not failed.
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

/// No rank failed: the ranks ended because pods are removed.
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
  const std::string message = "the pod of " + who + " is being removed; " + saved;
  out.push_back(AttemptYielded{s.attempt, message});
  if (departs(s.workers[0])) return hand_over(s, message, now, out);
  s.not_before = now;
  enter(s, Phase::Gathering, now);
}

}  // namespace

std::optional<Failure> find_culprit(const Session& s, Time now) {
  const bool gave_up = a_peer_gave_up(s) && !asked_to_stop(s);
  std::optional<Failure> best;
  auto best_key = std::make_tuple(static_cast<int>(kInnocent), false, 0, 0);
  int first_rank = 0;
  for (int w = 0; w < static_cast<int>(s.workers.size()); ++w) {
    const auto& report = s.workers[w].report;
    const bool later = w != s.suspect;
    if (const auto key =
            std::make_tuple(static_cast<int>(kOwnFault), w != s.lost_worker && later, 0, w);
        lost(s, w, now) && key < best_key) {
      best_key = key;
      best = Failure{
          .attempt = s.attempt,
          .worker = w,
          .step = s.highest_step,
          .reason = "WorkerLost",
          .message = "worker " + std::to_string(w) + " was lost: its agent is gone or silent"};
    }
    for (size_t i = 0; report.attempt == s.attempt && i < report.ranks.size(); ++i) {
      const auto& rank = report.ranks[i];
      const Suspicion suspicion = suspicion_of(s, rank, gave_up);
      const int number = first_rank + static_cast<int>(i);
      const bool after = suspicion == kHung && s.stall ? cleared(s, number) : later;
      const auto key = std::make_tuple(static_cast<int>(suspicion), after, rank.exit_order, w);
      if (suspicion == kInnocent || !(key < best_key)) continue;
      best_key = key;
      best = blame_rank(s, w, number, rank, suspicion);
    }
    first_rank += s.slots[w];
  }
  return best;
}

Exits count_exits(const Session& s, Time now) {
  Exits exits;
  for (int w = 0; w < static_cast<int>(s.workers.size()); ++w) {
    const Session::Worker& worker = s.workers[w];
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
  const bool all_clear = now >= s.config.quiet_until &&
                         std::ranges::all_of(s.workers, [&](const Session::Worker& worker) {
                           return clear(s, worker, now);
                         });
  out.push_back(JobEnded{std::move(outcome), all_clear});
}

void hand_over(Session& s, const std::string& message, Time now, Commands& out) {
  finish(s, {kExitPreempted, kReasonPreempted, message, true}, now, out);
}

/// Every rank of the attempt is gone: ends the job or prepares another attempt.
void conclude(Session& s, Time now, Commands& out) {
  const auto culprit = find_culprit(s, now);
  if (culprit && culprit->refused) {
    out.push_back(AttemptFailed{*culprit, false, Time(0), s.budget});
    return finish(s, {culprit->exit_code, culprit->reason, culprit->message}, now, out);
  }
  const Exits exits = count_exits(s, now);
  if (s.stop_requested) return conclude_stop(s, exits, culprit, now, out);
  // A rank that fails while it saves is a failure even during a yield. A worker that is gone by now
  // was removed, and before the first step there is nothing to save, so ranks may exit anywhere.
  const bool taken = !culprit || culprit->rank < 0 || s.highest_step == 0;
  if (s.yields && taken) return conclude_yield(s, exits, now, out);
  const Failure failure = culprit.value_or(
      Failure{.attempt = s.attempt,
              .exit_code = kExitPreempted,
              .step = s.highest_step,
              .reason = "Preempted",
              .message = "the ranks saved and stopped: someone else sent them SIGTERM"});
  RestartVerdict verdict{.allowed = true, .budget = s.budget};
  if (agent_charges(failure.worker, failure.rank, s.config.operated)) {
    s.charged.push_back({s.attempt, s.newest_checkpoint});
    verdict = charge_ends(s.account, s.charged);
  }
  s.budget = verdict.budget;
  out.push_back(AttemptFailed{failure, verdict.allowed, verdict.pause, verdict.budget});
  if (!verdict.allowed) {
    return finish(s,
                  {kExitFailed, "BackoffLimitExceeded",
                   "no restarts are left (backoffLimit " + std::to_string(s.budget.limit) +
                       "): " + failure.message},
                  now, out);
  }
  s.not_before = now + verdict.pause;
  enter(s, Phase::Gathering, now);
}

}  // namespace dsj::agent
