// Which row goes where: a pure function of (step, micro-step, rank, row in the micro-batch). A
// resumed run therefore goes on with the next row, and a run at another world size with the same
// global batch sees the same rows in the same step. Used by the loader. Changing the order changes
// every loss.
//
// An epoch ends as Trainer's does: its last step takes what is left, in fewer micro-steps if that
// is enough. One rank's last micro-batch is short. Several ranks have equally many micro-batches,
// all full, so the last ones are filled up with the epoch's first rows (even_batches of accelerate).
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
  /// Trainer's dataloader_drop_last, as accelerate deals: an epoch leaves out the rows that do not fill
  /// a micro-batch of every rank; its last step may have fewer micro-steps. Needs as many rows.
  bool drop_last_micro_batches = false;
  /// group_by_length: the tokens of each row (group_by_length.h). Null: rows are not grouped. Only
  /// with shuffle.
  std::shared_ptr<const std::vector<int32_t>> lengths = nullptr;
};

class Sampler {
 public:
  /// Every number must be at least 1, and there are as many lengths as rows (DSJ_CHECK).
  explicit Sampler(SamplerOptions options);

  /// The row's index. All arguments count from 0 and lie within what the next three functions say
  /// (DSJ_CHECK). One thread at a time.
  int64_t index(int64_t step, int64_t micro_step, int64_t rank, int64_t row) const;
  /// Micro-steps of a step: `accumulation`, or fewer in an epoch's last step.
  int64_t micro_steps(int64_t step) const;
  /// Rows of each rank's micro-batch: `micro_batch`, or fewer in an epoch's last one of a single
  /// rank.
  int64_t micro_rows(int64_t step, int64_t micro_step) const;
  int64_t epoch(int64_t step) const { return step / steps_per_epoch_; }
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// Rows that one step of all ranks takes, unless it ends an epoch.
  int64_t global_batch() const;
  const SamplerOptions& options() const { return options_; }

 private:
  /// Micro-steps of an epoch before this one.
  int64_t micro_steps_before(int64_t step, int64_t micro_step) const;
  SamplerOptions options_;
  int64_t epoch_rows_;         ///< rows of an epoch that are used
  int64_t epoch_micro_steps_;  ///< micro-steps of an epoch
  int64_t steps_per_epoch_;
  mutable std::optional<GroupByLength> groups_;
};

}  // namespace dsj::data
