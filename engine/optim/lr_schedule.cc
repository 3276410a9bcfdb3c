#include "engine/optim/lr_schedule.h"

#include <algorithm>

#include "job/dsconfig/config/rates.h"

namespace dsj::optim {

double learning_rate(const dsconfig::SchedulerConfig& config, double base_lr, int64_t steps_done) {
  return dsconfig::scheduled(config, base_lr, steps_done).lr;
}

Rates rates_at(const dsconfig::SchedulerConfig& config, double base_lr, int64_t steps_done) {
  const dsconfig::Scheduled now = dsconfig::scheduled(config, base_lr, steps_done);
  return {.lr = now.lr,
          .previous_lr = learning_rate(config, base_lr, std::max<int64_t>(0, steps_done - 1)),
          .momentum = now.momentum,
          .beta2 = now.beta2};
}

Rates rates_at(const dsconfig::ResolvedConfig& config, int64_t steps_done) {
  Rates rates = rates_at(config.scheduler, config.optimizer.lr, steps_done);
  if (config.optimizer.kind == OptimizerKind::Muon)
    rates.adam_lr = learning_rate(config.scheduler, config.muon.adam_lr, steps_done);
  return rates;
}

}  // namespace dsj::optim
