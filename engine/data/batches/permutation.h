// The order of an epoch's rows, without a table.
// Tested by: tests/engine/data/batches/sampler_test.cc
#pragma once

#include <cstdint>

namespace dsj::data {

/// The row at `position` in the order of `epoch`: a bijection of 0 .. rows-1 for each (seed,
/// epoch). A Feistel network over the next power of four is repeated until the value is below
/// `rows`. rows >= 1, 0 <= position < rows.
int64_t permuted(int64_t position, int64_t rows, uint64_t seed, uint64_t epoch);

}  // namespace dsj::data
