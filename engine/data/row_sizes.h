// The lengths of a data set's rows, cut to max_seq_length or whole: for packing, for
// group_by_length, and for `dsj plan`.
#pragma once

#include <cstdint>
#include <vector>

#include "common/result.h"
#include "engine/data/dataset.h"

namespace dsj::data {

struct RowSize {
  int32_t tokens = 0;
  int32_t targets = 0;  ///< labels after the first that are not -100
};

/// For rows first, first + 1 ... first + count - 1. Reads and tokenizes each of them, on `threads`
/// threads (at least 1). Errors: that of the first row in the file's order that cannot be read.
Result<std::vector<RowSize>> row_sizes(const Dataset& dataset, int64_t first, int64_t count,
                                       int threads, RowCut cut = RowCut::AtMaxLength);

/// Only the tokens.
std::vector<int32_t> tokens_of(const std::vector<RowSize>& sizes);

}  // namespace dsj::data
