// Which row goes where: a pure function of (step, micro-step, rank, row in the micro-batch). A
// resumed run therefore goes on with the next row, and a run at another world size with the same
// global batch sees the same rows in the same step. Used by the loader. Changing the order changes
// every loss.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/data/group_by_length.h"

namespace dsj::data {

struct SamplerOptions {
  int64_t rows = 0;
  int64_t accumulation = 1;  ///< micro-steps per step
  int64_t world = 1;
  int64_t micro_batch = 1;
  uint64_t seed = 42;
  bool shuffle = true;     ///< false: the file's order
  bool drop_last = false;  ///< an epoch leaves out rows that do not fill a global batch
  /// group_by_length: the tokens of each row (group_by_length.h). Null: rows are not grouped. Only
  /// with shuffle.
  std::shared_ptr<const std::vector<int32_t>> lengths = nullptr;
};

class Sampler {
 public:
  /// Every number must be at least 1, and there are as many lengths as rows (DSJ_CHECK).
  explicit Sampler(SamplerOptions options);

  /// The row's index. All arguments count from 0. Epochs follow each other without a gap: the last
  /// batch of one may hold the first rows of the next, unless drop_last. One thread at a time.
  int64_t index(int64_t step, int64_t micro_step, int64_t rank, int64_t row) const;
  /// The epoch of that row.
  int64_t epoch(int64_t step, int64_t micro_step, int64_t rank, int64_t row) const;
  /// Rows that one step of all ranks takes.
  int64_t global_batch() const;
  const SamplerOptions& options() const { return options_; }

 private:
  int64_t position(int64_t step, int64_t micro_step, int64_t rank, int64_t row) const;
  SamplerOptions options_;
  int64_t epoch_rows_;  ///< rows of an epoch that are used
  mutable std::optional<GroupByLength> groups_;
};

}  // namespace dsj::data
