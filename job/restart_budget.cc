#include "job/restart_budget.h"

#include <algorithm>

namespace dsj {

RestartVerdict charge_restart(RestartBudget budget, int64_t newest_checkpoint) {
  if (newest_checkpoint > budget.saved_step) {
    budget.saved_step = newest_checkpoint;
    budget.used = 0;
  }
  if (budget.used >= budget.limit) return {.allowed = false, .budget = budget};
  constexpr std::chrono::milliseconds kFirst{500}, kLongest{30'000};
  const auto pause = std::min(kLongest, kFirst * (int64_t{1} << std::min(budget.used, 10)));
  ++budget.used;
  ++budget.total;
  return {.allowed = true, .pause = pause, .budget = budget};
}

}  // namespace dsj
