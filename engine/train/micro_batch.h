// From a loader's batch to the model's input.
// Tested by: tests/engine/train/evaluate_test.cc, tests/engine/train/rows_test.cc
#pragma once

#include "engine/data/batch.h"
#include "engine/models/unit.h"

namespace dsj::train {

/// The batch's rows, end to end, on `device`, without waiting for it.
models::MicroBatch on_device(const data::Batch& batch, at::Device device);

}  // namespace dsj::train
