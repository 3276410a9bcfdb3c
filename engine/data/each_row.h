// Visits the rows of a part of a data set, tokenized on several threads.
// Tested by: tests/engine/data/row_sizes_test.cc
#pragma once

#include <cstdint>
#include <functional>

#include "common/result.h"
#include "engine/data/dataset.h"

namespace dsj::data {

/// Calls use(thread, row, sample) for rows first .. first + count - 1, `row` counted from 0 at
/// first, on threads 0 .. threads - 1 (at least 1). Each row is cut as `cut` says and visited
/// once; a thread visits its rows in ascending order. Errors: that of the first row in the
/// file's order that cannot be read.
Status each_row(const Dataset& dataset, int64_t first, int64_t count, int threads,
                const std::function<void(int thread, int64_t row, const Sample& sample)>& use,
                RowCut cut = RowCut::AtMaxLength);

}  // namespace dsj::data
