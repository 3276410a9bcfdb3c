// The quickstart's three tasks, as alpaca rows that a small model learns within minutes:
//   sums       two-digit sums with their steps: ones, tens with the carry, then the result
//   reversals  four different capital letters in reverse order
//   lookups    the codes of three words, from a table that only the training rows contain
// Pure: the seed determines everything.
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
  std::vector<Example> train;    ///< half are sums, a quarter each of the other tasks; shuffled
  std::vector<HeldOut> heldout;  ///< one entry per task, in the order above
};

struct TaskOptions {
  uint64_t seed = 1;
  int64_t train_rows = 0;
  int64_t heldout_per_task = 0;
};

/// No held-out question is a training row, not even a sum with its operands swapped. Errors:
/// BadInput if the held-out questions leave too few for training.
Result<TaskData> make_task_data(const TaskOptions& options);

}  // namespace dsj::tools
