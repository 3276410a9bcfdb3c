// What a schedule makes of a step: a pure function of the steps done. engine/optim/lr_schedule.h is
// the manual of the formulas and the trainer's door to them; resolve() checks here that a run's
// rates are numbers.
// Tested by: tests/engine/optim/lr_schedule_test.cc, tests/job/dsconfig/rates_test.cc
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "job/dsconfig/resolved.h"

namespace dsj::dsconfig {

/// The values for one step.
struct Scheduled {
  double lr = 0;
  std::optional<double> momentum = {}, beta2 = {};
};

/// `steps_done` is at least 0, and `config.type` one that resolve() lets through (DSJ_CHECK).
/// `base_lr`: the optimizer's own rate.
Scheduled scheduled(const SchedulerConfig& config, double base_lr, int64_t steps_done);

/// A step with which the optimizer cannot work.
struct BadRate {
  int64_t step = 0;  ///< from 1
  std::string what;  ///< "rate is nan", "momentum is inf"
};
/// The first step of a run of `steps` whose rate is negative, not finite or beyond fp32, or whose
/// momentum is not finite, or the step behind the last if its rate is not finite; nullopt: none.
/// DeepSpeed's OneCycle decays a momentum beyond 1, and trains with it: so does this.
/// Looks at every step up to kRatesChecked, in longer runs at as many: all at both ends, and between
/// them at equal distances.
std::optional<BadRate> first_bad_rate(const SchedulerConfig& config, double base_lr, int64_t steps);
inline constexpr int64_t kRatesChecked = 100'000;

// The three families. nullopt: the type is not one of its own.
std::optional<Scheduled> deepspeed_schedule(const SchedulerConfig& config, double base_lr,
                                            int64_t steps_done);
std::optional<Scheduled> hugging_face_schedule(const SchedulerConfig& config, double base_lr,
                                               int64_t steps_done);
std::optional<Scheduled> torch_schedule(const SchedulerConfig& config, double base_lr,
                                        int64_t steps_done);

}  // namespace dsj::dsconfig
