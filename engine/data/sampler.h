// Which row goes where: a pure function of (step, micro-step, rank, row in the micro-batch), so
// that a resumed run goes on with the next row, and a run at another world size with the same
// global batch sees the same rows in the same step. Used by the loader; the order is part of the
// result: changing it changes every loss.
#pragma once

#include <cstdint>

namespace dsj::data {

/// The `position`-th of 0 .. rows-1 in the order of `epoch`: a bijection for each (seed, epoch).
/// A Feistel network over the next power of four, walked until it falls below `rows`: no table.
/// Rows >= 1, 0 <= position < rows.
int64_t permuted(int64_t position, int64_t rows, uint64_t seed, uint64_t epoch);

struct SamplerOptions {
  int64_t rows = 0;
  int64_t accumulation = 1;  ///< micro-steps per step
  int64_t world = 1;
  int64_t micro_batch = 1;
  uint64_t seed = 42;
  bool shuffle = true;     ///< false: the file's order
  bool drop_last = false;  ///< an epoch leaves out the rows that fill no global batch
};

class Sampler {
 public:
  /// Every number at least 1 (checked).
  explicit Sampler(SamplerOptions options);

  /// Steps, micro-steps, ranks and rows from 0. Epochs follow each other without a gap: the last
  /// batch of one may hold the first rows of the next, unless drop_last.
  int64_t index(int64_t step, int64_t micro_step, int64_t rank, int64_t row) const;
  /// The epoch in which that row is.
  int64_t epoch(int64_t step, int64_t micro_step, int64_t rank, int64_t row) const;
  /// Rows one step of all ranks takes.
  int64_t global_batch() const;
  const SamplerOptions& options() const { return options_; }

 private:
  int64_t position(int64_t step, int64_t micro_step, int64_t rank, int64_t row) const;
  SamplerOptions options_;
  int64_t epoch_rows_;  ///< rows of one epoch that are dealt
};

}  // namespace dsj::data
