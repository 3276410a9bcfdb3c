// How long the rows of a data set are, cut to max_seq_length or whole: for packing, for groups
// of one length, and for `dsj plan`.
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"
#include "engine/data/dataset.h"

namespace dsj::data {

struct RowSize {
  int32_t tokens = 0;
  int32_t targets = 0;  ///< tokens that predict one: labels behind the first that are not -100
};

/// Of rows first, first + 1 ... first + count - 1. Reads and tokenizes each of them, on `threads`
/// threads (at least 1). Error: the first row, in the file's order, that cannot be read.
Result<std::vector<RowSize>> row_sizes(const Dataset& dataset, int64_t first, int64_t count,
                                       int threads, RowCut cut = RowCut::AtMaxLength);

/// Their tokens alone.
std::vector<int32_t> tokens_of(const std::vector<RowSize>& sizes);

}  // namespace dsj::data
