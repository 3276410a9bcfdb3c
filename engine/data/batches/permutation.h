// The order of an epoch's rows, without a table.
// Tested by: tests/engine/data/batches/sampler_test.cc
#pragma once

#include <cstdint>

namespace dsj::data {

/// The `position`-th of 0 .. rows-1 in the order of `epoch`: a bijection for each (seed, epoch). It
/// is a Feistel network over the next power of four, repeated until the value is below `rows`, so
/// it needs no table. rows >= 1, 0 <= position < rows.
int64_t permuted(int64_t position, int64_t rows, uint64_t seed, uint64_t epoch);

}  // namespace dsj::data
