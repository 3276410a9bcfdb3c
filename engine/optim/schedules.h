// The three families of schedules behind lr_schedule.h. Internal to the room.
#pragma once

#include <cstdint>
#include <optional>

#include "common/dsconfig/resolved.h"

namespace dsj::optim {

/// What a family says of a step; no value: the type is not of this family.
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
