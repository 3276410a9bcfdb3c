// The schedules of transformers, as factors of the base rate, in its order of operations. Steps
// count from 0, and the scheduler is ahead of the optimizer: there is no shift.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "job/dsconfig/config/rates.h"

namespace dsj::dsconfig {
namespace {

/// Python's max(1, n).
double at_least_one(int64_t n) {
  return double(std::max<int64_t>(1, n));
}

double wave(double cycles, double progress) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * cycles * 2.0 * progress));
}

double stable_decay(const SchedulerConfig& config, int64_t s) {
  const auto& hf = config.hugging_face;
  const int64_t w = config.warmup_steps, stable = w + hf.stable_steps;
  const auto above_least = [&](double factor) {
    return std::max(0.0, factor * (1.0 - hf.min_lr_rate) + hf.min_lr_rate);
  };
  if (s < w) {
    const double progress = double(s) / at_least_one(w);
    if (hf.warmup_shape == Shape::Cosine)
      return above_least(0.5 * (1.0 - std::cos(std::numbers::pi * progress)));
    return above_least(hf.warmup_shape == Shape::Linear ? progress
                                                        : 1.0 - std::sqrt(1.0 - progress));
  }
  if (s < stable) return 1.0;
  if (s >= stable + hf.decay_steps) return hf.min_lr_rate;
  const double progress = double(s - stable) / at_least_one(hf.decay_steps);
  if (hf.decay_shape == Shape::Cosine) return above_least(wave(hf.num_cycles, progress));
  return above_least(hf.decay_shape == Shape::Linear ? 1.0 - progress : 1.0 - std::sqrt(progress));
}

double cosine_after_rated_warmup(const SchedulerConfig& config, int64_t s) {
  const auto& hf = config.hugging_face;
  const int64_t w = config.warmup_steps;
  if (s < w) {
    if (!hf.warmup_lr_rate) return (double(s) + 1.0) / at_least_one(w);
    return *hf.warmup_lr_rate + (1.0 - *hf.warmup_lr_rate) * double(s) / at_least_one(w - 1);
  }
  const double progress = (double(s - w) + 1.0) / at_least_one(config.total_steps - w);
  return std::max(0.0, wave(hf.num_cycles, progress) * (1 - hf.min_lr_rate) + hf.min_lr_rate);
}

double polynomial(const SchedulerConfig& config, double base_lr, int64_t s) {
  const auto& hf = config.hugging_face;
  // If the warm-up takes the whole run, there is no decay.
  if (s > config.total_steps || config.total_steps <= config.warmup_steps)
    return hf.end_lr / base_lr;
  const double steps = double(config.total_steps - config.warmup_steps);
  const double left = 1 - double(s - config.warmup_steps) / steps;
  return ((base_lr - hf.end_lr) * std::pow(left, hf.power) + hf.end_lr) / base_lr;
}

/// The types whose warm-up is s / w. nullopt for another type.
std::optional<double> factor(const SchedulerConfig& config, double base_lr, int64_t s) {
  const auto& hf = config.hugging_face;
  const std::string& type = config.type;
  const int64_t w = config.warmup_steps;
  const bool known = type == "constant_with_warmup" || type == "linear" || type == "cosine" ||
                     type == "cosine_with_restarts" || type == "cosine_with_min_lr" ||
                     type == "polynomial" || type == "inverse_sqrt";
  if (!known) return std::nullopt;
  if (s < w) return double(s) / at_least_one(w);
  if (type == "constant_with_warmup") return 1.0;
  if (type == "polynomial") return polynomial(config, base_lr, s);
  if (type == "inverse_sqrt")
    return 1.0 / std::sqrt(double(s + hf.timescale - w) / double(hf.timescale));
  const double steps = at_least_one(config.total_steps - w);
  if (type == "linear") return std::max(0.0, double(config.total_steps - s) / steps);
  const double progress = double(s - w) / steps;
  if (type == "cosine") return std::max(0.0, wave(hf.num_cycles, progress));
  if (type == "cosine_with_min_lr")
    return std::max(0.0, wave(hf.num_cycles, progress) * (1 - hf.min_lr_rate) + hf.min_lr_rate);
  if (progress >= 1.0) return 0.0;
  const double turn = std::fmod(hf.num_cycles * progress, 1.0);
  return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * turn)));
}

}  // namespace

std::optional<Scheduled> hugging_face_schedule(const SchedulerConfig& config, double base_lr,
                                               int64_t steps_done) {
  if (config.type == "constant") return Scheduled{base_lr};
  if (config.type == "warmup_stable_decay")
    return Scheduled{base_lr * stable_decay(config, steps_done)};
  if (config.type == "cosine_warmup_with_min_lr")
    return Scheduled{base_lr * cosine_after_rated_warmup(config, steps_done)};
  const auto found = factor(config, base_lr, steps_done);
  if (!found) return std::nullopt;
  return Scheduled{base_lr * *found};
}

}  // namespace dsj::dsconfig
