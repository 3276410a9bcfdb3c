// Learning-rate schedules as pure functions of the number of steps: no state to save. The trainer
// calls rates_at() before every optimizer step. Skipped steps (overflow) do not count. resolve()
// refuses schedules that follow a metric or take Python objects.
#pragma once

#include <cstdint>

#include "engine/optim/optimizer.h"
#include "job/dsconfig/config/resolved.h"

namespace dsj::optim {

/// The learning rate for the optimizer step that follows `steps_done` applied steps (0: the first).
/// `base_lr` is the optimizer's own rate.
///
/// s = steps_done, w = warmup_steps, T = total_steps.
///
/// DeepSpeed 0.19's. The scheduler steps after the optimizer: its classes see i = s - 1, and step 0
/// uses what the constructor wrote. n = max(2, w). For i < n, g = ln(i + 1) / ln(n) with
/// log_warmup, else i / n.
///
///   WarmupLR          s = 0: min_lr
///                     else:  min_lr + (max_lr - min_lr) * g, with g = 1 for i >= n
///   WarmupDecayLR     the same with g = max(0, (T - i) / max(1, T - n)) for i >= n
///   WarmupCosineLR    s = 0:  0
///                     i < n:  base_lr * (a + (1 - a) * g), a = warmup_min_ratio
///                     i >= n: base_lr * (c + (1 - c) * (1 + cos(pi p)) / 2), c = cos_min_ratio,
///                             p = min(1, (i - n + 1) / max(1, T - n))
///   LRRangeTest       min_lr * (1 + step_rate * x), x = s / step_size; staircase: x = floor(x)
///   OneCycle          from min_lr up to max_lr in first_size steps, down in second_size steps,
///                     both in stairs if asked; then min_lr / (1 + decay_lr_rate * d),
///                     d = steps beyond the cycle / decay_step_size
///
/// Hugging Face's. The warm-up is base_lr * s / max(1, w) for s < w, unless the row says otherwise.
/// p = (s - w) / max(1, T - w).
///
///   constant                     base_lr, no warm-up
///   constant_with_warmup         base_lr
///   linear                       base_lr * max(0, (T - s) / max(1, T - w))
///   cosine                       base_lr * (1 + cos(2 pi num_cycles p)) / 2
///   cosine_with_restarts         base_lr * (1 + cos(pi (num_cycles p mod 1))) / 2; 0 for p >= 1
///   cosine_with_min_lr           cosine's, from base_lr down to min_lr_rate * base_lr
///   cosine_warmup_with_min_lr    the same, one step earlier; warm-up from warmup_lr_rate
///   polynomial                   lr_end + (base_lr - lr_end) * (1 - (s - w) / (T - w))^power;
///                                lr_end beyond T
///   inverse_sqrt                 base_lr / sqrt((s + timescale - w) / timescale)
///   warmup_stable_decay          warm-up, num_stable_steps at base_lr, num_decay_steps down
///
/// torch.optim.lr_scheduler's, in the closed forms of torch's documentation, with last_epoch = s:
///   StepLR, MultiStepLR, ConstantLR, LinearLR, ExponentialLR, PolynomialLR, CosineAnnealingLR,
///   CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
///
/// resolve() lets no other type through, and steps_done is never negative (DSJ_CHECK).
double learning_rate(const dsconfig::SchedulerConfig& config, double base_lr, int64_t steps_done);

/// The same rate, with the previous step's, and with the momentum that OneCycle, CyclicLR
/// and OneCycleLR cycle against the rate.
Rates rates_at(const dsconfig::SchedulerConfig& config, double base_lr, int64_t steps_done);
/// The rates of a run, from all rates of its optimizer.
Rates rates_at(const dsconfig::ResolvedConfig& config, int64_t steps_done);

}  // namespace dsj::optim
