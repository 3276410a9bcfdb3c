// Curriculum learning and random-LTD with every number decided: plain data, and what they are at a
// step as pure functions of it. The trainer, the plan and the curves go by these. docs/data.md
// says what the keys mean and where DeepSpeed's versions differ.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dsj::dsconfig {

/// How difficult a step's rows may be: DeepSpeed's curriculum scheduler.
struct DifficultySchedule {
  std::string type = "fixed_linear";  ///< fixed_linear, fixed_root, fixed_discrete
  int64_t min = 1, max = 1;           ///< min <= max
  /// fixed_linear and fixed_root: min + (step / total_steps)^(1 / root_degree) * (max - min), rounded
  /// down to a multiple of difficulty_step, at most max.
  int64_t total_steps = 1, difficulty_step = 1;
  double root_degree = 1;  ///< fixed_linear: 1
  /// Until 0.19.7 rounding may go below min. 0.19.8 starts at the first multiple from min on.
  bool may_round_below_min = false;
  /// fixed_discrete: difficulties[i] until last_steps[i]; the last of them without end.
  std::vector<int64_t> difficulties, last_steps;

  /// Of the step `step`, counted from 1. Once max is reached it stays, whatever follows in a list.
  int64_t at(int64_t step) const;
  /// The smallest and the largest of steps 1 to `steps`, at least 1 step.
  int64_t lowest(int64_t steps) const;
  int64_t highest(int64_t steps) const;
};

/// Rows are cut to the step's difficulty in tokens.
struct RowLengthCurriculum {
  std::string metric = "seqlen";  ///< its name, in metrics.jsonl too
  DifficultySchedule schedule;
};

/// Some layers see only some tokens of each row; the others pass around them.
struct RandomLtdConfig {
  std::vector<int64_t> layers;  ///< rising, from 0
  int64_t min = 1, max = 1;     ///< tokens kept per row, at the start and at the end
  int64_t require_steps = 1;    ///< steps from min to max
  int64_t tokens_per_step = 1;  ///< the number kept is a multiple of it, or max

  /// Tokens of a row that those layers keep once `steps_done` steps are done.
  int64_t kept(int64_t steps_done) const;
};

struct DataEfficiencyConfig {
  std::optional<RowLengthCurriculum> row_length;
  std::optional<RandomLtdConfig> random_ltd;

  /// What the step `step`, counted from 1, goes by: metric → difficulty, "random_ltd" → tokens kept.
  /// Empty: nothing is on.
  std::map<std::string, int64_t> difficulties(int64_t step) const;
};

}  // namespace dsj::dsconfig
