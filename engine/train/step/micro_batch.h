// Converts a loader's batch to the model's input.
// Tested by: tests/engine/train/step/evaluate_test.cc, tests/engine/train/rows_test.cc
#pragma once

#include "engine/data/batches/batch.h"
#include "engine/models/unit/unit.h"
#include "engine/zero/flat/groups.h"

namespace dsj::train {

/// The part of its micro-batches that a rank has.
inline models::TokenPart token_part(const zero::Groups& groups) {
  return {groups.sequence_rank(), groups.sequence_ranks()};
}

/// The batch's rows, concatenated, on `device`, without waiting for it. `part`: only this part.
models::MicroBatch on_device(const data::Batch& batch, at::Device device,
                             models::TokenPart part = {});

}  // namespace dsj::train
