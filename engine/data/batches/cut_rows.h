// Rows cut to a length, for a curriculum by length (job/dsconfig/data_efficiency_config.h). Pure.
#pragma once

#include <cstdint>

#include "engine/data/batches/batch.h"

namespace dsj::data {

/// The first `length` tokens of each row, with their labels; shorter rows stay whole. length >= 1.
Batch cut_rows(const Batch& batch, int64_t length);

/// Labels that some token predicts: not ignored, and not the first of a row.
int64_t targets(const Batch& batch);

}  // namespace dsj::data
