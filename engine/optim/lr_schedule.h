// Learning-rate schedules as pure functions: no state to save but the number of steps done.
// The trainer calls learning_rate() before every optimizer step; a skipped step (overflow) does not
// count as done. Left out: WarmupCosineLR, OneCycle, LRRangeTest (the resolver refuses them).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "common/dsconfig/resolved.h"

namespace dsj::optim {

/// The learning rate that the optimizer step after `steps_done` applied steps uses (0: the first).
///
/// With s = steps_done, w = warmup_steps, T = total_steps, n = max(2, w), i = s - 1:
///   constant              base_lr
///   WarmupLR              s = 0: min_lr; else min_lr + (max_lr - min_lr) * g, for i < n with
///                         g = ln(i + 1) / ln(n) (log_warmup) or i / n (linear), then 1.
///                         As DeepSpeed 0.19: the scheduler steps after the optimizer, so
///                         steps 0 and 1 both use min_lr.
///   WarmupDecayLR         the same with g = max(0, (T - i) / max(1, T - n)) for i >= n
///   constant_with_warmup  base_lr * s / max(1, w) for s < w, then base_lr
///   linear                then base_lr * max(0, (T - s) / max(1, T - w))
///   cosine                then base_lr * (1 + cos(pi * (s - w) / max(1, T - w))) / 2; past T it
///                         rises again, as in transformers
/// `base_lr` is the optimizer's own; DeepSpeed's two schedules do not look at it.
/// A type that is not listed, or a negative steps_done, cannot happen here (DSJ_CHECK).
double learning_rate(const dsconfig::SchedulerConfig& config, double base_lr, int64_t steps_done);

/// The types above, for messages and for the resolver's refusal.
std::span<const std::string_view> schedule_types();

}  // namespace dsj::optim
