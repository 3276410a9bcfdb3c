// Learning-rate schedules as pure functions: no state to save but the number of steps done.
// The trainer calls rates_at() before every optimizer step; a skipped step (overflow) does not
// count as done. Refused by the resolver: schedules that follow a metric or take Python objects.
#pragma once

#include <cstdint>

#include "common/dsconfig/resolved.h"
#include "engine/optim/optimizer.h"

namespace dsj::optim {

/// The learning rate that the optimizer step after `steps_done` applied steps uses (0: the first).
///
/// With s = steps_done, w = warmup_steps, T = total_steps, n = max(2, w), i = s - 1. `base_lr` is
/// the optimizer's own.
///
/// DeepSpeed 0.19's: the scheduler steps after the optimizer, so the class sees i, and step 0 uses
/// what its constructor wrote. g = ln(i + 1) / ln(n) (log_warmup) or i / n (linear) for i < n.
///   WarmupLR              s = 0: min_lr; else min_lr + (max_lr - min_lr) * g, then g = 1
///   WarmupDecayLR         the same with g = max(0, (T - i) / max(1, T - n)) for i >= n
///   WarmupCosineLR        s = 0: 0; else base_lr * (warmup_min_ratio + (1 - warmup_min_ratio) *
///   g);
///                         for i >= n base_lr * (cos_min_ratio + (1 - cos_min_ratio) *
///                         (1 + cos(pi p)) / 2), p = min(1, (i - n + 1) / max(1, T - n))
///   LRRangeTest           min_lr * (1 + step_rate * s / step_size), staircase: floor(s /
///   step_size) OneCycle              up from min_lr to max_lr in first_size steps, down in
///   second_size, in
///                         stairs if asked; then min_lr / (1 + decay_lr_rate * d), d = steps beyond
///                         the cycle / decay_step_size
/// Hugging Face's: base_lr * s / max(1, w) for s < w, unless said, then
///   constant, constant_with_warmup   base_lr (constant: no warm-up)
///   linear                base_lr * max(0, (T - s) / max(1, T - w))
///   cosine                base_lr * (1 + cos(2 pi num_cycles p)) / 2, p = (s - w) / max(1, T - w)
///   cosine_with_restarts  base_lr * (1 + cos(pi (num_cycles p mod 1))) / 2, 0 from p = 1
///   cosine_with_min_lr    cosine between base_lr and min_lr_rate * base_lr
///   cosine_warmup_with_min_lr  the same, one step earlier; warm-up from warmup_lr_rate
///   polynomial            (base_lr - lr_end) * (1 - (s-w)/(T-w))^power + lr_end, lr_end beyond T
///   inverse_sqrt          base_lr / sqrt((s + timescale - w) / timescale)
///   warmup_stable_decay   warm-up, num_stable_steps at base_lr, num_decay_steps down
/// torch.optim.lr_scheduler's, with last_epoch = s, in the closed form of torch's documentation:
///   StepLR MultiStepLR ConstantLR LinearLR ExponentialLR PolynomialLR CosineAnnealingLR
///   CosineAnnealingWarmRestarts CyclicLR OneCycleLR
/// A type that is not listed, or a negative steps_done, cannot happen here (DSJ_CHECK).
double learning_rate(const dsconfig::SchedulerConfig& config, double base_lr, int64_t steps_done);

/// The same with the momentum that OneCycle, CyclicLR and OneCycleLR cycle against the rate, and
/// the rate of the step before.
Rates rates_at(const dsconfig::SchedulerConfig& config, double base_lr, int64_t steps_done);

}  // namespace dsj::optim
