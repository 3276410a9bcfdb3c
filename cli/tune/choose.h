// Decides which configuration `dsj tune` tries next, and when the search ends, from the
// outcomes so far alone, so that an interrupted search can continue. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/tune/cost_model.h"
#include "cli/tune/space.h"

namespace dsj::tune {

enum class Metric { Throughput, Latency, Flops };
enum class Order { Grid, Random, Model };

/// A configuration that fits, with its counts.
struct Option {
  Candidate candidate;
  Counts counts;
  double tokens = 0;  ///< expected tokens per step of all ranks
};

/// Configurations that differ only in their micro-batch size, ascending.
using Group = std::vector<Option>;

struct Rules {
  Metric metric = Metric::Throughput;
  Order order = Order::Grid;
  int64_t early_stopping = 5;  ///< successive trials without improvement
  int64_t trials_max = 50;
  bool everything = false;  ///< try every option, without pruning
  uint64_t seed = 42;       ///< for Order::Random
};

/// The outcome of a trial.
struct Outcome {
  Option option;
  bool ran = false;  ///< false: it failed, the other members are meaningless
  double step_seconds = 0, tokens_per_second = 0;
};

/// Higher is better: tokens per second, or steps per second for Latency. FLOPS of one model are
/// tokens per second times a constant.
double score_of(const Outcome& outcome, Metric metric);
/// The best trial that ran, or null.
const Outcome* best_of(std::span<const Outcome> tried, Metric metric);

struct Next {
  const Option* option = nullptr;  ///< null if the search is over
  std::string because;             ///< the reason
};

/// `tried` begins with the given file. Not tried are micro-batches above twice the largest that
/// ran, above a size that gained less than 5 % over the size before it, as in DeepSpeed, or
/// above a size of the same group that failed.
Next choose(const std::vector<Group>& groups, const Rules& rules, std::span<const Outcome> tried);

}  // namespace dsj::tune
