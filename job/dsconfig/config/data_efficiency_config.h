// Curriculum learning and random-LTD with every number resolved: plain data, and their values at a
// step as pure functions. The trainer, the plan and the curves use them. docs/data.md defines the
// keys and lists differences between DeepSpeed's versions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dsj::dsconfig {

/// The difficulty that the rows of a step may have: DeepSpeed's curriculum scheduler.
struct DifficultySchedule {
  std::string type = "fixed_linear";  ///< fixed_linear, fixed_root, fixed_discrete
  int64_t min = 1, max = 1;           ///< min <= max
  /// fixed_linear and fixed_root: min + (step / total_steps)^(1 / root_degree) * (max - min), rounded
  /// down to a multiple of difficulty_step, at most max.
  int64_t total_steps = 1, difficulty_step = 1;
  double root_degree = 1;  ///< fixed_linear: 1
  /// 0.19.7 and earlier may round below min; 0.19.8 starts at the first multiple from min on.
  bool may_round_below_min = false;
  /// fixed_discrete: difficulties[i] up to last_steps[i]; the last of them without an end.
  std::vector<int64_t> difficulties, last_steps;

  /// The difficulty at step `step`, from 1. Once max is reached it stays, also if a list goes on.
  int64_t at(int64_t step) const;
  /// The lowest and the highest difficulty of steps 1 to `steps`; `steps` is at least 1.
  int64_t lowest(int64_t steps) const;
  int64_t highest(int64_t steps) const;
};

/// Rows are cut to the step's difficulty, in tokens.
struct RowLengthCurriculum {
  std::string metric = "seqlen";  ///< its name, also in metrics.jsonl
  DifficultySchedule schedule;
};

/// Some layers process only some tokens of each row; the other tokens bypass them.
struct RandomLtdConfig {
  std::vector<int64_t> layers;  ///< ascending, from 0
  int64_t min = 1, max = 1;     ///< tokens kept per row, at the start and at the end
  int64_t require_steps = 1;    ///< steps from min to max
  int64_t tokens_per_step = 1;  ///< the number of kept tokens is a multiple of it, or max

  /// Tokens of a row that those layers keep after `steps_done` steps.
  int64_t kept(int64_t steps_done) const;
};

struct DataEfficiencyConfig {
  std::optional<RowLengthCurriculum> row_length;
  std::optional<RandomLtdConfig> random_ltd;

  /// The values at step `step`, from 1: metric → difficulty, "random_ltd" → tokens kept. Empty if
  /// nothing is on.
  std::map<std::string, int64_t> difficulties(int64_t step) const;
};

}  // namespace dsj::dsconfig
