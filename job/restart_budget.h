// The restart budget: whether another attempt may follow a failed one, and after which pause. Pure.
// An operator keeps the account: it charges each failure that agent 0's part of the status records,
// and each pod that was lost. Agent 0 adds what that account lacks. Without an operator (`dsj run`),
// agent 0 or, if it is gone, `dsj run` keeps the account.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

namespace dsj {

struct RestartBudget {
  int limit = 6;            ///< backoffLimit: restarts in a row without a newer checkpoint
  int used = 0;             ///< restarts counted against `limit`
  int total = 0;            ///< restarts in all, never reset
  int64_t saved_step = -1;  ///< newest checkpoint at the last charge; -1: none
};

struct RestartVerdict {
  bool allowed = false;
  /// Before the next attempt: none after the first failure, then 1 s, doubling, at most 30 s.
  std::chrono::milliseconds pause{0};
  RestartBudget budget;  ///< for the caller to store
};

/// Call when an attempt has failed. A checkpoint newer than `budget.saved_step` first restores the
/// whole budget. If no attempt is allowed, nothing else changes.
RestartVerdict charge_restart(RestartBudget budget, int64_t newest_checkpoint);

/// The end of an attempt that agent 0 charged.
struct ChargedEnd {
  int64_t attempt = 0;
  int64_t newest_checkpoint = -1;  ///< at that time
};

/// Charges the ends that `account` lacks, oldest first. Returns the verdict about the last one.
RestartVerdict charge_ends(const RestartBudget& account, std::span<const ChargedEnd> ends);

/// True if agent 0 charges an end for which it blames this worker and rank (-1: none). If a worker
/// is gone or silent, only its pod shows the cause: then the operator alone decides.
constexpr bool agent_charges(int64_t worker, int64_t rank, bool operated) {
  return !operated || worker < 0 || rank >= 0;
}

}  // namespace dsj
