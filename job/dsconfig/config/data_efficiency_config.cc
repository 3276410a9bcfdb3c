#include "job/dsconfig/config/data_efficiency_config.h"

#include <algorithm>
#include <cmath>

namespace dsj::dsconfig {
namespace {

/// min + part^(1 / degree) * (max - min), rounded down to a multiple of `multiple`. A result above
/// max may be any value from max on.
int64_t grown(double part, double degree, int64_t min, int64_t max, int64_t multiple) {
  const double span = static_cast<double>(max - min);
  const double exact = std::floor(std::pow(part, 1.0 / degree) * span + static_cast<double>(min));
  const auto value = static_cast<int64_t>(std::min(exact, static_cast<double>(max + multiple)));
  return value - value % multiple;
}

}  // namespace

int64_t DifficultySchedule::at(int64_t step) const {
  if (min >= max) return min;
  if (type != "fixed_discrete") {
    const double part = static_cast<double>(step) / static_cast<double>(total_steps);
    int64_t value = grown(part, root_degree, min, max, difficulty_step);
    if (!may_round_below_min)
      value = std::max(value, (min + difficulty_step - 1) / difficulty_step * difficulty_step);
    return std::min(value, max);
  }
  int64_t passed = 0;
  for (size_t i = 0; i < last_steps.size(); ++i) {
    if (last_steps[i] <= passed) continue;  // an empty range of steps
    if (step <= last_steps[i] || difficulties[i] >= max) return difficulties[i];
    passed = last_steps[i];
  }
  return difficulties.back();
}

int64_t DifficultySchedule::lowest(int64_t steps) const {
  int64_t least = std::min(at(1), at(steps));
  for (const int64_t last : last_steps)
    if (last >= 0 && last < steps) least = std::min(least, at(last + 1));
  return least;
}

int64_t DifficultySchedule::highest(int64_t steps) const {
  int64_t most = std::max(at(1), at(steps));
  for (const int64_t last : last_steps)
    if (last >= 0 && last < steps) most = std::max(most, at(last + 1));
  return most;
}

int64_t RandomLtdConfig::kept(int64_t steps_done) const {
  const double part = static_cast<double>(steps_done) / static_cast<double>(require_steps);
  return std::min(grown(part, 1, min, max, tokens_per_step), max);
}

std::map<std::string, int64_t> DataEfficiencyConfig::difficulties(int64_t step) const {
  std::map<std::string, int64_t> all;
  if (row_length) all[row_length->metric] = row_length->schedule.at(step);
  if (random_ltd) all["random_ltd"] = random_ltd->kept(step - 1);
  return all;
}

}  // namespace dsj::dsconfig
