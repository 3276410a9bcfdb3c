// The learning rate of a schedule at a step: a pure function of the steps done.
// engine/optim/lr_schedule.h documents the formulas and is the trainer's interface; resolve() uses
// this to check that a run's rates are finite.
// Tested by: tests/engine/optim/lr_schedule_test.cc, tests/job/dsconfig/config/rates_test.cc
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "job/dsconfig/config/resolved.h"

namespace dsj::dsconfig {

/// The values for one step.
struct Scheduled {
  double lr = 0;
  std::optional<double> momentum = {}, beta2 = {};
};

/// `steps_done` is at least 0; `config.type` is one that resolve() accepts (DSJ_CHECK).
/// `base_lr`: the optimizer's own rate.
Scheduled scheduled(const SchedulerConfig& config, double base_lr, int64_t steps_done);

/// A step whose values an optimizer cannot use.
struct BadRate {
  int64_t step = 0;  ///< from 1
  std::string what;  ///< "rate is nan", "momentum is inf"
};
/// The first step of a run of `steps` steps with a rate that is negative, not finite or beyond
/// fp32, or with a momentum that is not finite; nullopt if none. Also checks that the rate after
/// the last step is finite. DeepSpeed's OneCycle can decay a momentum beyond 1 and trains with it;
/// so does this. Checks every step up to kRatesChecked; of a longer run as many steps: all at both
/// ends, evenly spaced between.
std::optional<BadRate> first_bad_rate(const SchedulerConfig& config, double base_lr, int64_t steps);
inline constexpr int64_t kRatesChecked = 100'000;

// The three families. nullopt if the type belongs to another family.
std::optional<Scheduled> deepspeed_schedule(const SchedulerConfig& config, double base_lr,
                                            int64_t steps_done);
std::optional<Scheduled> hugging_face_schedule(const SchedulerConfig& config, double base_lr,
                                               int64_t steps_done);
std::optional<Scheduled> torch_schedule(const SchedulerConfig& config, double base_lr,
                                        int64_t steps_done);

}  // namespace dsj::dsconfig
