// Maps (step, micro-step, rank, row in the micro-batch) to a row; a pure function. So a resumed
// run continues with the next row, and a run at another world size with the same global batch
// sees the same rows in the same step. Used by the loader. Changing the order changes every
// loss.
//
// An epoch ends as in Trainer: its last step takes the remaining rows, in fewer micro-steps if
// these suffice. With one rank the last micro-batch is short. Several ranks have equally many full
// micro-batches; the last ones are filled with the epoch's first rows (even_batches of accelerate).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/data/batches/group_by_length.h"

namespace dsj::data {

struct SamplerOptions {
  int64_t rows = 0;
  int64_t accumulation = 1;  ///< micro-steps per step
  int64_t world = 1;
  int64_t micro_batch = 1;
  uint64_t seed = 42;
  bool shuffle = true;  ///< false: the file's order
  /// An epoch leaves out rows that do not fill a global batch, unless there are no others.
  bool drop_last = false;
  /// Trainer's dataloader_drop_last with accelerate: an epoch leaves out the rows that do not fill
  /// a micro-batch on every rank. Its last step may have fewer micro-steps. Requires as many rows.
  bool drop_last_micro_batches = false;
  /// group_by_length: the tokens of each row (group_by_length.h). Null if rows are not grouped.
  /// Requires shuffle.
  std::shared_ptr<const std::vector<int32_t>> lengths = nullptr;
};

class Sampler {
 public:
  /// Every number must be at least 1, and every row needs a length, if any has one (DSJ_CHECK).
  explicit Sampler(SamplerOptions options);

  /// The row's index. All arguments count from 0 and must be within the limits of the next
  /// three functions (DSJ_CHECK). One thread at a time.
  int64_t index(int64_t step, int64_t micro_step, int64_t rank, int64_t row) const;
  /// Number of micro-steps in a step: `accumulation`, or fewer in an epoch's last step.
  int64_t micro_steps(int64_t step) const;
  /// Rows in each rank's micro-batch: `micro_batch`, or fewer in an epoch's last one if there
  /// is one rank.
  int64_t micro_rows(int64_t step, int64_t micro_step) const;
  int64_t epoch(int64_t step) const { return step / steps_per_epoch_; }
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// Rows per step over all ranks, except in an epoch's last step.
  int64_t global_batch() const;
  const SamplerOptions& options() const { return options_; }

 private:
  /// Number of the epoch's micro-steps before this one.
  int64_t micro_steps_before(int64_t step, int64_t micro_step) const;
  SamplerOptions options_;
  int64_t epoch_rows_;         ///< rows used per epoch
  int64_t epoch_micro_steps_;  ///< micro-steps per epoch
  int64_t steps_per_epoch_;
  mutable std::optional<GroupByLength> groups_;
};

}  // namespace dsj::data
