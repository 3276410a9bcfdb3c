#include "agent/gang/blame.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <tuple>

#include "agent/gang/rank_end.h"
#include "agent/gang/ranks_text.h"
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
  // SIGTERM hit it before it had a handler, when there was nothing to save.
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

/// What the ranks showed. If nobody can be told apart, no rank is blamed.
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

/// What the ranks showed does not speak against this one.
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

}  // namespace

std::string describe_exit(int exit_code, int signal) {
  if (signal == 0) return "exit code " + std::to_string(exit_code);
  const char* name = sigdescr_np(signal);
  return "signal " + std::to_string(signal) + " (" + (name ? name : "unknown") + ")";
}

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

}  // namespace dsj::agent
