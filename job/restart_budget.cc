#include "job/restart_budget.h"

#include <algorithm>

namespace dsj {

RestartVerdict charge_restart(RestartBudget budget, int64_t newest_checkpoint) {
  if (newest_checkpoint > budget.saved_step) {
    budget.saved_step = newest_checkpoint;
    budget.used = 0;
  }
  if (budget.used >= budget.limit) return {.allowed = false, .budget = budget};
  constexpr std::chrono::milliseconds kUnit{500}, kLongest{30'000}, kNone{0};
  const auto doubled = std::min(kLongest, kUnit * (int64_t{1} << std::min(budget.used, 10)));
  // The first failure since a checkpoint is most often one process that was killed: nothing that a
  // pause would mend. What fails again is waited out as long as ever.
  const auto pause = budget.used == 0 ? kNone : doubled;
  ++budget.used;
  ++budget.total;
  return {.allowed = true, .pause = pause, .budget = budget};
}

RestartBudget with_account(const RestartBudget& own, int charged_since, const RestartBudget& told) {
  RestartBudget budget = own;
  budget.limit = told.limit;
  budget.total = std::max(own.total, told.total + charged_since);
  // What was charged since the newest checkpoint is known here alone until the operator reads it.
  if (told.saved_step < own.saved_step) return budget;
  budget.used = told.used + charged_since;
  budget.saved_step = told.saved_step;
  return budget;
}

}  // namespace dsj
