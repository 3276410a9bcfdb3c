#include "agent/status/termination.h"

#include <algorithm>

#include "agent/gang/rank_end.h"
#include "job/contract.h"

namespace dsj::agent {
namespace {

using namespace dsj::contract;
using report::TerminationMessage;

std::string reason_of(int exit_code) {
  switch (exit_code) {
    case kExitDone:
      return kReasonCompleted;
    case kExitPreempted:
      return kReasonPreempted;
    case kExitPeerLost:
      return "PeerLost";
    case kExitBadInput:
      return "BadInput";
    case kExitEnvironment:
      return "Environment";
    case kExitNotFinite:
      return kReasonNotFinite;
    default:
      return "Failed";
  }
}

/// The first of this worker's ranks that failed by itself; null if there is none.
const RankState* failed_rank(const std::vector<RankState>& ranks, size_t* index) {
  const RankState* first = nullptr;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankState& rank = ranks[i];
    const RankEnd end = end_of(rank);
    if (end != RankEnd::Failed && end != RankEnd::Refused) continue;
    if (first && first->exit_order <= rank.exit_order) continue;
    first = &rank;
    *index = i;
  }
  return first;
}

void blame(TerminationMessage& result, int64_t rank, int64_t exit_code, int64_t signal,
           const std::string& last_words) {
  result.rank = rank;
  if (signal != 0) {
    result.signal = signal;
  } else {
    result.exit_code = exit_code;
  }
  if (!last_words.empty()) result.last_words = last_words;
}

}  // namespace

TerminationMessage termination_of(const Worker& worker, const std::vector<int>& ranks,
                                  const Outcome* outcome,
                                  const std::optional<report::Failure>& last_failure) {
  int64_t step = 0;
  for (const auto& rank : worker.report.ranks) step = std::max(step, rank.step);
  TerminationMessage result{.step = step, .attempt = worker.report.attempt};
  if (outcome) {
    result.reason = outcome->reason;
    result.message = outcome->message;
    const bool failed = outcome->exit_code != kExitDone && outcome->exit_code != kExitPreempted;
    if (failed && last_failure && last_failure->rank >= 0) {
      blame(result, last_failure->rank, last_failure->exit_code, last_failure->signal,
            last_failure->last_words);
    }
    return result;
  }
  result.reason = reason_of(worker.exit_code);
  result.message = worker.exit_reason;
  if (worker.exit_code == kExitDone || worker.exit_code == kExitPreempted) return result;
  size_t index = 0;
  if (const RankState* rank = failed_rank(worker.report.ranks, &index)) {
    const int number = index < ranks.size() ? ranks[index] : -1;
    blame(result, number, rank->exit_code, rank->signal, rank->last_words);
    if (!rank->reason.empty()) result.reason = rank->reason;
    result.message = "rank " + std::to_string(number) + " ended with " +
                     describe_exit(rank->exit_code, rank->signal);
    if (!rank->message.empty()) result.message += ": " + rank->message;
  }
  return result;
}

TerminationMessage termination_of(const Error& error) {
  return {.reason = error.kind == ErrorKind::BadInput ? "BadInput" : "Environment",
          .message = error.to_string(),
          .step = 0,
          .attempt = 0};
}

}  // namespace dsj::agent
