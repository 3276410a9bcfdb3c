// Which configuration `dsj tune` tries next, and when it has seen enough: a function of what was
// tried. A search that was interrupted goes on from its outcomes alone. Pure.
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

/// A configuration that fits, and what it counts.
struct Option {
  Candidate candidate;
  Counts counts;
  double tokens = 0;  ///< of a step of all ranks, expected
};

/// Configurations that differ in the size of the micro-batch alone, rising.
using Group = std::vector<Option>;

struct Rules {
  Metric metric = Metric::Throughput;
  Order order = Order::Grid;
  int64_t early_stopping = 5;  ///< trials in a row without a better one
  int64_t trials_max = 50;
  bool everything = false;  ///< every option is tried, whatever the others gave
  uint64_t seed = 42;       ///< of Order::Random
};

/// What a trial gave.
struct Outcome {
  Option option;
  bool ran = false;  ///< false: it failed, and the rest means nothing
  double step_seconds = 0, tokens_per_second = 0;
};

/// The higher the better: tokens per second, or steps per second for Latency. FLOPS of one model are
/// tokens per second times a constant.
double score_of(const Outcome& outcome, Metric metric);
/// The best that ran; null: none did.
const Outcome* best_of(std::span<const Outcome> tried, Metric metric);

struct Next {
  const Option* option = nullptr;  ///< null: the search is over
  std::string because;             ///< why it is over
};

/// `tried` begins with the file as given. A larger micro-batch than twice the largest that ran is
/// not tried, nor one above a size that gained less than 5 % over the size before it, as in
/// DeepSpeed; nor one in the group of a smaller one that failed.
Next choose(const std::vector<Group>& groups, const Rules& rules, std::span<const Outcome> tried);

}  // namespace dsj::tune
