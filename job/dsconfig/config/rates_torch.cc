// torch.optim.lr_scheduler's types in closed form. torch multiplies step by step, so the last bits
// differ.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "job/dsconfig/config/rates.h"

namespace dsj::dsconfig {
namespace {

using std::numbers::pi;

double half_wave(double least, double most, double progress) {
  return least + (most - least) * (1 + std::cos(pi * progress)) / 2;
}

double warm_restarts(const SchedulerConfig& config, double base_lr, int64_t s) {
  const int64_t factor = config.torch.period_factor;
  int64_t period = config.torch.period, left = s;
  if (factor == 1) left %= period;  // avoids a loop with one pass per step
  while (left >= period) {
    left -= period;
    if (__builtin_mul_overflow(period, factor, &period)) period = INT64_MAX;
  }
  return half_wave(config.torch.eta_min, base_lr, double(left) / double(period));
}

Scheduled cyclic(const SchedulerConfig& config, double s) {
  const auto& t = config.torch;
  const double total = t.step_size_up + t.step_size_down, ratio = t.step_size_up / total;
  const double cycle = std::floor(1 + s / total);
  const double x = 1.0 + s / total - cycle;
  double height = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
  if (t.mode == "triangular2") height *= 1 / std::pow(2.0, cycle - 1);
  if (t.mode == "exp_range") height *= std::pow(t.gamma, s);
  Scheduled now{.lr = config.min_lr + (config.max_lr - config.min_lr) * height};
  if (t.cycle_momentum) now.momentum = t.max_momentum - (t.max_momentum - t.base_momentum) * height;
  return now;
}

Scheduled one_cycle_lr(const SchedulerConfig& config, double s) {
  const auto& t = config.torch;
  const double total = double(config.total_steps), first = config.max_lr / t.div_factor;
  const double last = first / t.final_div_factor;
  struct Phase {
    double end, from, to, momentum_from, momentum_to;
  };
  const double rise = t.pct_start * total - 1;
  const Phase up{rise, first, config.max_lr, t.max_momentum, t.base_momentum};
  const std::array<Phase, 3> three = {
      up,
      {2 * t.pct_start * total - 2, config.max_lr, first, t.base_momentum, t.max_momentum},
      {total - 1, first, last, t.max_momentum, t.max_momentum}};
  const std::array<Phase, 2> two = {
      up, {total - 1, config.max_lr, last, t.base_momentum, t.max_momentum}};
  const Phase* phase = t.three_phase ? three.data() : two.data();
  const Phase* const final = phase + (t.three_phase ? 2 : 1);
  double start = 0;
  for (; phase != final && s > phase->end; ++phase) start = phase->end;
  const double progress = (s - start) / (phase->end - start);
  const auto between = [&](double from, double to) {
    if (t.linear) return (to - from) * progress + from;
    return to + (from - to) / 2.0 * (std::cos(pi * progress) + 1);
  };
  Scheduled now{.lr = between(phase->from, phase->to)};
  if (t.cycle_momentum) now.momentum = between(phase->momentum_from, phase->momentum_to);
  return now;
}

}  // namespace

std::optional<Scheduled> torch_schedule(const SchedulerConfig& config, double base_lr,
                                        int64_t steps_done) {
  const auto& t = config.torch;
  const std::string& type = config.type;
  const auto s = double(steps_done);
  const double share = std::min(1.0, s / double(t.total_iters));
  if (type == "CyclicLR") return cyclic(config, s);
  if (type == "OneCycleLR") return one_cycle_lr(config, s);
  if (type == "StepLR")
    return Scheduled{base_lr * std::pow(t.gamma, double(steps_done / t.step_size))};
  if (type == "MultiStepLR")
    return Scheduled{base_lr * std::pow(t.gamma, double(std::ranges::count_if(
                                                     t.milestones, [&](int64_t milestone) {
                                                       return milestone <= steps_done;
                                                     })))};
  if (type == "ConstantLR") return Scheduled{base_lr * (share < 1 ? t.start_factor : 1.0)};
  if (type == "LinearLR")
    return Scheduled{base_lr * (t.start_factor + (t.end_factor - t.start_factor) * share)};
  if (type == "ExponentialLR") return Scheduled{base_lr * std::pow(t.gamma, s)};
  if (type == "PolynomialLR") return Scheduled{base_lr * std::pow(1 - share, t.power)};
  if (type == "CosineAnnealingLR")
    return Scheduled{half_wave(t.eta_min, base_lr, s / double(t.period))};
  if (type == "CosineAnnealingWarmRestarts")
    return Scheduled{warm_restarts(config, base_lr, steps_done)};
  return std::nullopt;
}

}  // namespace dsj::dsconfig
