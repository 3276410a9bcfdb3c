// A learning-rate schedule with every number resolved. engine/optim/lr_schedule.h has the formulas.
// Plain data; the defaults are the classes' own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dsj::dsconfig {

/// DeepSpeed's OneCycle, between SchedulerConfig's min_lr and max_lr.
struct OneCycleConfig {
  double first_size = 2000, second_size = 2000;  ///< steps up, steps down
  int64_t first_stairs = 0, second_stairs = 0;   ///< 0: continuous
  double decay_step_size = 0;                    ///< 0: no decay after the cycle
  double decay_lr_rate = 0, decay_momentum_rate = 0;
  bool momentum = true;  ///< writes betas = (momentum, 0.99)
  double min_momentum = 0.8, max_momentum = 0.9;
};

/// DeepSpeed's LRRangeTest, from SchedulerConfig's min_lr.
struct RangeTestConfig {
  int64_t step_size = 2000;
  double step_rate = 1.0;
  bool staircase = false;
};

/// DeepSpeed's WarmupCosineLR: factors of the optimizer's rate.
struct WarmupCosineConfig {
  double warmup_min_ratio = 0.0, cos_min_ratio = 1e-4;
};

enum class Shape { Linear, Cosine, OneMinusSqrt };

/// lr_scheduler_kwargs of Hugging Face's types.
struct HuggingFaceScheduleConfig {
  double num_cycles = 0.5;                    ///< of cosine; 1 for cosine_with_restarts
  double power = 1.0, end_lr = 1e-7;          ///< polynomial
  int64_t timescale = 10000;                  ///< inverse_sqrt
  double min_lr_rate = 0.0;                   ///< share of the base rate
  std::optional<double> warmup_lr_rate;       ///< cosine_warmup_with_min_lr
  int64_t stable_steps = 0, decay_steps = 0;  ///< warmup_stable_decay
  Shape warmup_shape = Shape::Linear, decay_shape = Shape::Cosine;
};

/// torch.optim.lr_scheduler's types, by torch's names.
struct TorchScheduleConfig {
  double gamma = 0.1;
  int64_t step_size = 1;
  std::vector<int64_t> milestones;
  double start_factor = 1.0 / 3, end_factor = 1.0;  ///< ConstantLR's factor is start_factor
  int64_t total_iters = 5;
  double power = 1.0;
  int64_t period = 1, period_factor = 1;  ///< T_max or T_0; T_mult
  double eta_min = 0.0;
  double step_size_up = 2000, step_size_down = 2000;
  std::string mode = "triangular";
  double pct_start = 0.3, div_factor = 25, final_div_factor = 1e4;
  bool linear = false, three_phase = false;
  bool cycle_momentum = true;
  double base_momentum = 0.8, max_momentum = 0.9;
};

/// lr, and momentum if the type cycles it, as a function of the optimizer steps done.
struct SchedulerConfig {
  /// "constant"; DeepSpeed's WarmupLR, WarmupDecayLR, WarmupCosineLR, LRRangeTest, OneCycle;
  /// Hugging Face's and torch's types by their own names.
  std::string type = "constant";
  double min_lr = 0.0;  ///< warmup_min_lr, cycle_min_lr, lr_range_test_min_lr, CyclicLR's base_lr
  double max_lr = 0.0;  ///< warmup_max_lr, cycle_max_lr, max_lr, or the base of Hugging Face's
  int64_t warmup_steps = 0;  ///< warmup_num_steps
  int64_t total_steps = 0;   ///< total_num_steps; OneCycleLR's total_steps
  bool log_warmup = true;    ///< warmup_type: log (DeepSpeed's default) or linear
  WarmupCosineConfig warmup_cosine;
  RangeTestConfig range_test;
  OneCycleConfig one_cycle;
  HuggingFaceScheduleConfig hugging_face;
  TorchScheduleConfig torch;
};

}  // namespace dsj::dsconfig
