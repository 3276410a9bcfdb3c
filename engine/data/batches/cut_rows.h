// Cuts rows to a length, for a curriculum by length (job/dsconfig/config/data_efficiency_config.h). Pure.
#pragma once

#include <cstdint>

#include "engine/data/batches/batch.h"

namespace dsj::data {

/// Keeps the first `length` >= 1 tokens of each row with their labels; shorter rows stay whole.
Batch cut_rows(const Batch& batch, int64_t length);

/// Number of labels with a loss: not ignored, and not at the first token of a row.
int64_t targets(const Batch& batch);

}  // namespace dsj::data
