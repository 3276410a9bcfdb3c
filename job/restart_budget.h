// The restart budget: whether another attempt may follow a failed one, and after which pause. One
// pure function. Worker 0's agent calls it; if that agent is gone, `dsj run` or the operator does.
// The caller stores the numbers.
#pragma once

#include <chrono>
#include <cstdint>

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

/// The budget of an agent that has read the operator's `account`. The account knows more (lost
/// pods, rules that leave an end uncharged) and may be older: it lacks the `charged_since` ends
/// that the agent has charged since.
RestartBudget with_account(const RestartBudget& own, int charged_since,
                           const RestartBudget& account);

}  // namespace dsj
