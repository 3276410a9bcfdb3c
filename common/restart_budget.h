// The restart budget: may a failed attempt be followed by another, and after which pause?
// One pure function, called by whoever decides (the agent of worker 0; `dsj run` or the operator
// when that agent itself is gone). Nothing is kept here: the caller owns the numbers.
#pragma once

#include <chrono>
#include <cstdint>

namespace dsj {

struct RestartBudget {
  int limit = 6;            ///< backoffLimit: restarts in a row without a newer checkpoint
  int used = 0;             ///< of those
  int total = 0;            ///< restarts in all, never reset
  int64_t saved_step = -1;  ///< newest checkpoint when the budget was last charged; -1: none
};

struct RestartVerdict {
  bool allowed = false;
  std::chrono::milliseconds pause{0};  ///< before the next attempt: 0.5 s, doubled, at most 30 s
  RestartBudget budget;                ///< what the caller keeps from now on
};

/// One attempt has failed. A checkpoint newer than `budget.saved_step` gives the whole budget back
/// first. Not allowed: the budget is returned unchanged but for that.
RestartVerdict charge_restart(RestartBudget budget, int64_t newest_checkpoint);

}  // namespace dsj
