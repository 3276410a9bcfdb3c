// Counts the rows that are longer than max_seq_length, and the tokens that are cut off.
#pragma once

#include <cstdint>

#include "common/result.h"
#include "engine/data/dataset.h"

namespace dsj::data {

struct LongRows {
  int64_t rows = 0;            ///< all rows of the call
  int64_t cut = 0;             ///< rows longer than the data set's max_seq_length
  int64_t tokens = 0;          ///< total of tokens cut off
  int64_t without_target = 0;  ///< cut rows that lose all their targets
  bool estimated = false;      ///< from a sample of the rows
};

/// For rows first .. first + count - 1, on `threads` threads. Rows with too few bytes to be cut
/// are skipped. If the others have more than `bytes_max` bytes, every k-th is read and counts k
/// times. Errors: a row cannot be read.
Result<LongRows> count_long_rows(const Dataset& dataset, int64_t first, int64_t count, int threads,
                                 int64_t bytes_max = 64 << 20);

}  // namespace dsj::data
