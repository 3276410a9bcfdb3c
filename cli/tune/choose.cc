#include "cli/tune/choose.h"

#include <algorithm>
#include <limits>

#include "common/check.h"

namespace dsj::tune {
namespace {

constexpr double kGain = 1.05;  ///< DeepSpeed's

/// The given file equals the option with the same values.
bool same(const Candidate& a, const Candidate& b) {
  return a.stage == b.stage && a.micro_batch == b.micro_batch && a.accumulation == b.accumulation &&
         a.offload == b.offload && a.settings == b.settings;
}

const Outcome* find(std::span<const Outcome> tried, const Option& option) {
  for (const Outcome& one : tried)
    if (same(one.option.candidate, option.candidate)) return &one;
  return nullptr;
}

/// The largest useful size: the first one that gained too little over the size before it.
int64_t useful_size(const std::vector<Group>& groups, const Rules& rules,
                    std::span<const Outcome> tried) {
  int64_t most = std::numeric_limits<int64_t>::max();
  for (const Group& group : groups)
    for (size_t i = 1; i < group.size(); ++i) {
      const Outcome* smaller = find(tried, group[i - 1]);
      const Outcome* larger = find(tried, group[i]);
      if (smaller && larger && smaller->ran && larger->ran &&
          score_of(*larger, rules.metric) < kGain * score_of(*smaller, rules.metric))
        most = std::min(most, group[i].candidate.micro_batch);
    }
  return most;
}

/// The options that may be tried now, in the order of the groups.
std::vector<const Option*> open_options(const std::vector<Group>& groups, const Rules& rules,
                                        std::span<const Outcome> tried) {
  int64_t largest = 0;
  for (const Outcome& one : tried)
    if (one.ran || one.option.candidate.given)
      largest = std::max(largest, one.option.candidate.micro_batch);
  const int64_t most = std::min(2 * largest, useful_size(groups, rules, tried));
  std::vector<const Option*> open;
  for (const Group& group : groups) {
    bool failed = false;
    for (const Option& option : group) {
      const Outcome* outcome = find(tried, option);
      if (outcome == nullptr &&
          (rules.everything || (!failed && option.candidate.micro_batch <= most)))
        open.push_back(&option);
      failed = failed || (outcome && !outcome->ran);
    }
  }
  return open;
}

/// splitmix64's finalizer.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

/// The best option by the cost model of the trials so far; without trials the first.
const Option* most_promising(const std::vector<const Option*>& open, const Rules& rules,
                             std::span<const Outcome> tried) {
  std::vector<CostModel::Measured> measured;
  for (const Outcome& one : tried)
    if (one.ran) measured.push_back({one.option.counts, one.step_seconds});
  if (measured.empty()) return open.front();
  const CostModel model(measured);
  return *std::ranges::max_element(open, {}, [&](const Option* option) {
    const double seconds = model.seconds(option->counts);
    return score_of({.option = *option,
                     .ran = true,
                     .step_seconds = seconds,
                     .tokens_per_second = option->tokens / seconds},
                    rules.metric);
  });
}

}  // namespace

double score_of(const Outcome& outcome, Metric metric) {
  if (!outcome.ran) return 0;
  return metric == Metric::Latency ? 1 / outcome.step_seconds : outcome.tokens_per_second;
}

const Outcome* best_of(std::span<const Outcome> tried, Metric metric) {
  const Outcome* best = nullptr;
  for (const Outcome& one : tried)
    if (one.ran && (!best || score_of(one, metric) > score_of(*best, metric))) best = &one;
  return best;
}

Next choose(const std::vector<Group>& groups, const Rules& rules, std::span<const Outcome> tried) {
  DSJ_CHECK(!tried.empty());
  const auto count = std::ssize(tried);
  if (!rules.everything && count >= rules.trials_max)
    return {nullptr, "tuner_num_trials, " + std::to_string(rules.trials_max) + ", is reached"};
  const Outcome* best = best_of(tried, rules.metric);
  const int64_t since = best ? count - 1 - (best - tried.data()) : count - 1;
  if (!rules.everything && since >= rules.early_stopping)
    return {nullptr, std::to_string(since) + " trials in a row were no better"};
  const auto open = open_options(groups, rules, tried);
  if (open.empty()) return {nullptr, "nothing is left that could be better"};
  switch (rules.order) {
    case Order::Grid:
      return {open.front(), ""};
    case Order::Random:
      return {open[mix(rules.seed + static_cast<uint64_t>(count)) % open.size()], ""};
    case Order::Model:
      return {most_promising(open, rules, tried), ""};
  }
  return {};
}

}  // namespace dsj::tune
