// The three families of schedules behind lr_schedule.h. Internal to engine/optim.
// Tested by: tests/engine/optim/lr_schedule_test.cc
#pragma once

#include <cstdint>
#include <optional>

#include "job/dsconfig/resolved.h"

namespace dsj::optim {

/// The values for one step. nullopt from a family: the type is not one of its own.
struct Scheduled {
  double lr = 0;
  std::optional<double> momentum = {}, beta2 = {};
};

std::optional<Scheduled> deepspeed_schedule(const dsconfig::SchedulerConfig& config, double base_lr,
                                            int64_t steps_done);
std::optional<Scheduled> hugging_face_schedule(const dsconfig::SchedulerConfig& config,
                                               double base_lr, int64_t steps_done);
std::optional<Scheduled> torch_schedule(const dsconfig::SchedulerConfig& config, double base_lr,
                                        int64_t steps_done);

}  // namespace dsj::optim
