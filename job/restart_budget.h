// The restart budget: may another attempt follow a failed one, and after which pause? One pure
// function. Whoever decides calls it: worker 0's agent, or `dsj run` or the operator when that
// agent is gone. The caller keeps the numbers.
#pragma once

#include <chrono>
#include <cstdint>

namespace dsj {

struct RestartBudget {
  int limit = 6;            ///< backoffLimit: restarts in a row without a newer checkpoint
  int used = 0;             ///< of these
  int total = 0;            ///< restarts in all, never reset
  int64_t saved_step = -1;  ///< newest checkpoint at the last charge; -1: none
};

struct RestartVerdict {
  bool allowed = false;
  /// Before the next attempt: none after the first failure, then 1 s, doubling, at most 30 s.
  std::chrono::milliseconds pause{0};
  RestartBudget budget;  ///< for the caller to keep
};

/// Call when an attempt has failed. A checkpoint newer than `budget.saved_step` first gives the
/// whole budget back. If no attempt is allowed, nothing else of the budget changes.
RestartVerdict charge_restart(RestartBudget budget, int64_t newest_checkpoint);

/// The budget of an agent that reads the operator's account `told`. The account has more in it
/// (lost pods, rules that leave an end uncharged) and may be older: `charged_since` ends that the
/// agent charged are not in it yet.
RestartBudget with_account(const RestartBudget& own, int charged_since, const RestartBudget& told);

}  // namespace dsj
