// How many rows are longer than what is trained on of a row, and what is cut off them.
#pragma once

#include <cstdint>

#include "common/result.h"
#include "engine/data/dataset.h"

namespace dsj::data {

struct LongRows {
  int64_t rows = 0;            ///< all that were asked for
  int64_t cut = 0;             ///< of these, longer than the data set's max_seq_length
  int64_t tokens = 0;          ///< cut off, all together
  int64_t without_target = 0;  ///< cut rows that had targets and kept none
  bool estimated = false;      ///< some rows stand for others
};

/// Of rows first .. first + count - 1, on `threads` threads. Rows whose bytes are too few to be cut
/// are not looked at. Of the others, if they have more than `bytes_max` bytes, every k-th is, and
/// stands for k. Error: a row cannot be read.
Result<LongRows> count_long_rows(const Dataset& dataset, int64_t first, int64_t count, int threads,
                                 int64_t bytes_max = 64 << 20);

}  // namespace dsj::data
