// DeepSpeed 0.19's five schedules, in its order of operations, so that results are bit-identical.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "job/dsconfig/config/rates.h"

namespace dsj::dsconfig {
namespace {

int64_t warmup_of(const SchedulerConfig& config) {
  return std::max<int64_t>(2, config.warmup_steps);
}

/// Rises from 0 to 1 during the warm-up.
double warmup_factor(const SchedulerConfig& config, int64_t iteration) {
  const int64_t warmup = warmup_of(config);
  if (!config.log_warmup) return double(iteration) / double(warmup);
  return (1.0 / std::log(double(warmup))) * std::log(double(iteration + 1));
}

double warmup_decay(const SchedulerConfig& config, int64_t iteration) {
  const int64_t warmup = warmup_of(config);
  if (iteration < warmup) return warmup_factor(config, iteration);
  if (config.type == "WarmupLR") return 1.0;
  const int64_t decay_steps = std::max<int64_t>(1, config.total_steps - warmup);
  return std::max(0.0, double(config.total_steps - iteration) / double(decay_steps));
}

double warmup_cosine(const SchedulerConfig& config, int64_t iteration) {
  const int64_t warmup = warmup_of(config);
  const auto& c = config.warmup_cosine;
  if (iteration < warmup)
    return c.warmup_min_ratio + warmup_factor(config, iteration) * (1.0 - c.warmup_min_ratio);
  const double steps = double(std::max<int64_t>(1, config.total_steps - warmup));
  const double progress = std::min(1.0, double(iteration - warmup + 1) / steps);
  const double ratio = (1 + std::cos(std::numbers::pi * progress)) / 2;
  return std::max(0.0, c.cos_min_ratio + (1.0 - c.cos_min_ratio) * ratio);
}

/// The height `batch` steps after the cycle's start: 0 at both ends, 1 at the peak.
double cycle_height(const OneCycleConfig& c, double batch) {
  const double total = c.first_size + c.second_size, ratio = c.first_size / total;
  const double cycle = std::floor(1 + batch / total);
  const double x = 1. + batch / total - cycle;
  const bool up = x <= ratio;
  const auto stairs = static_cast<double>(up ? c.first_stairs : c.second_stairs);
  if (stairs == 0) return up ? x / ratio : (x - 1) / (ratio - 1);
  // Computed from whole steps: rounding may put x one bit below a stair.
  const double step = std::fmod(batch, total);
  const double position =
      step <= c.first_size ? step * stairs / c.first_size : (total - step) * stairs / c.second_size;
  return std::floor(position) / stairs;
}

Scheduled one_cycle(const SchedulerConfig& config, int64_t steps_done) {
  const auto& c = config.one_cycle;
  Scheduled now{.lr = config.min_lr};
  if (c.momentum) {
    now.momentum = c.min_momentum;  // as the constructor sets it, for one step
    now.beta2 = 0.99;
  }
  if (steps_done == 0) return now;
  const double iteration = double(steps_done - 1), total = c.first_size + c.second_size;
  if (iteration < total) {
    const double height = cycle_height(c, iteration + 1);
    now.lr = config.min_lr + (config.max_lr - config.min_lr) * height;
    if (c.momentum) now.momentum = c.max_momentum - (c.max_momentum - c.min_momentum) * height;
    return now;
  }
  if (c.momentum) now.momentum = c.max_momentum;
  if (c.decay_step_size == 0) return now;
  const double interval = (iteration - total + 1) / c.decay_step_size;
  now.lr = config.min_lr / (1 + c.decay_lr_rate * interval);
  if (c.momentum) now.momentum = c.max_momentum * (1 + c.decay_momentum_rate * interval);
  return now;
}

double range_test(const SchedulerConfig& config, int64_t steps_done) {
  const double interval = double(steps_done) / double(config.range_test.step_size);
  return config.min_lr * (1 + config.range_test.step_rate *
                                  (config.range_test.staircase ? std::floor(interval) : interval));
}

}  // namespace

std::optional<Scheduled> deepspeed_schedule(const SchedulerConfig& config, double base_lr,
                                            int64_t steps_done) {
  if (config.type == "OneCycle") return one_cycle(config, steps_done);
  if (config.type == "LRRangeTest") return Scheduled{range_test(config, steps_done)};
  if (config.type == "WarmupCosineLR")
    return Scheduled{steps_done == 0 ? 0.0 : base_lr * warmup_cosine(config, steps_done - 1)};
  if (config.type != "WarmupLR" && config.type != "WarmupDecayLR") return std::nullopt;
  if (steps_done == 0) return Scheduled{config.min_lr};
  return Scheduled{config.min_lr +
                   (config.max_lr - config.min_lr) * warmup_decay(config, steps_done - 1)};
}

}  // namespace dsj::dsconfig
