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
  // The first failure since a checkpoint is most often a killed process, where a pause does not
  // help. Repeated failures wait for the full pause.
  const auto pause = budget.used == 0 ? kNone : doubled;
  ++budget.used;
  ++budget.total;
  return {.allowed = true, .pause = pause, .budget = budget};
}

RestartVerdict charge_ends(const RestartBudget& account, std::span<const ChargedEnd> ends) {
  RestartVerdict verdict{.allowed = true, .budget = account};
  for (const ChargedEnd& end : ends)
    verdict = charge_restart(verdict.budget, end.newest_checkpoint);
  return verdict;
}

}  // namespace dsj
