#include "engine/optim/lr_schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "common/check.h"

namespace dsj::optim {
namespace {

constexpr std::array<std::string_view, 6> kTypes = {
    "constant", "WarmupLR", "WarmupDecayLR", "constant_with_warmup", "linear", "cosine"};

/// DeepSpeed's factor between min_lr and max_lr. The operations are in its order, for its last bit.
double warmup_decay_factor(const dsconfig::SchedulerConfig& config, int64_t iteration) {
  const int64_t warmup = std::max<int64_t>(2, config.warmup_steps);
  if (iteration < warmup) {
    if (!config.log_warmup) return double(iteration) / double(warmup);
    return (1.0 / std::log(double(warmup))) * std::log(double(iteration + 1));
  }
  if (config.type == "WarmupLR") return 1.0;
  const int64_t decay_steps = std::max<int64_t>(1, config.total_steps - warmup);
  return std::max(0.0, double(config.total_steps - iteration) / double(decay_steps));
}

/// Hugging Face's multiplier of the base learning rate.
double hugging_face_factor(const dsconfig::SchedulerConfig& config, int64_t steps_done) {
  const int64_t warmup = config.warmup_steps;
  if (steps_done < warmup) return double(steps_done) / double(std::max<int64_t>(1, warmup));
  if (config.type == "constant_with_warmup") return 1.0;
  const auto decay_steps = double(std::max<int64_t>(1, config.total_steps - warmup));
  if (config.type == "linear") {
    return std::max(0.0, double(config.total_steps - steps_done) / decay_steps);
  }
  const double progress = double(steps_done - warmup) / decay_steps;
  return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * progress)));
}

}  // namespace

std::span<const std::string_view> schedule_types() {
  return kTypes;
}

double learning_rate(const dsconfig::SchedulerConfig& config, double base_lr, int64_t steps_done) {
  DSJ_CHECK(steps_done >= 0);
  if (config.type == "constant") return base_lr;
  if (config.type == "WarmupLR" || config.type == "WarmupDecayLR") {
    if (steps_done == 0) return config.min_lr;
    const double factor = warmup_decay_factor(config, steps_done - 1);
    return config.min_lr + (config.max_lr - config.min_lr) * factor;
  }
  DSJ_CHECK(
      config.type == "constant_with_warmup" || config.type == "linear" || config.type == "cosine",
      "scheduler type %s", config.type.c_str());
  return base_lr * hugging_face_factor(config, steps_done);
}

}  // namespace dsj::optim
