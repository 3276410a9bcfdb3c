// The quickstart's three tasks, as alpaca rows that a small model learns within minutes:
//   sums       two-digit sums, worked out: ones, tens with the carry, then the result
//   reversals  four different capital letters, the other way round
//   lookups    three words to their codes, from a table that is only in the training rows
// Pure: everything follows from the seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::tools {

struct Example {
  std::string instruction;
  std::string input;  ///< may be empty
  std::string output;
  bool operator==(const Example&) const = default;
};

struct HeldOut {
  std::string task;  ///< "sums", "reversals", "lookups"
  std::vector<Example> examples;
};

struct TaskData {
  std::vector<Example> train;    ///< half sums, a quarter of each other, shuffled
  std::vector<HeldOut> heldout;  ///< one entry per task, in the order above
};

struct TaskOptions {
  uint64_t seed = 1;
  int64_t train_rows = 0;
  int64_t heldout_per_task = 0;
};

/// No held-out question is among the training rows, a sum with its operands swapped neither.
/// BadInput: more held-out questions asked for than leave enough to train on.
Result<TaskData> make_task_data(const TaskOptions& options);

}  // namespace dsj::tools
