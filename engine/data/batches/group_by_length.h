// group_by_length: puts rows of similar length into one batch, like Hugging Face's
// LengthGroupedSampler. The epoch's random order is cut into mega-batches of 50 batches (fewer
// if there are not four times as many rows); each is sorted, longest first; and the longest row
// of all is swapped with the first, so that memory runs out in the first step or never. A batch
// is what one rank takes in a step: micro-batch x accumulation, as in Hugging Face.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace dsj::data {

class GroupByLength {
 public:
  /// `lengths`: the length of every row, at least one row; `batch` >= 1 (DSJ_CHECK).
  GroupByLength(std::shared_ptr<const std::vector<int32_t>> lengths, int64_t batch, uint64_t seed);

  /// The row at `place` of `epoch`, 0 <= place < rows: a bijection for each epoch. Successive
  /// places of one epoch are cheap; others sort a mega-batch again. One thread at a time.
  int64_t row(uint64_t epoch, int64_t place);

 private:
  std::vector<int64_t> sorted(uint64_t epoch, int64_t group) const;
  void begin_epoch(uint64_t epoch);

  const std::shared_ptr<const std::vector<int32_t>> lengths_;
  const uint64_t seed_;
  int64_t group_rows_;  ///< rows of a mega-batch

  // The last results.
  int64_t epoch_ = -1, group_ = -1;
  int64_t longest_place_ = 0;                ///< where the longest row is before the swap
  int64_t first_row_ = 0, longest_row_ = 0;  ///< these two are swapped
  std::vector<int64_t> rows_;                ///< rows of group_
};

}  // namespace dsj::data
