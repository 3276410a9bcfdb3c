// Says at the start how many rows are cut.
// Tested by: tests/run/not_finite_run_test.cc
#pragma once

#include "engine/train/events.h"
#include "engine/train/inputs.h"

namespace dsj::train {

/// Warns of rows of the training data that are longer than what is trained on of a row, and reports
/// them. A row that cannot be read is the loader's to refuse. Rank 0.
void tell_long_rows(const Inputs& in, const Events& events);

}  // namespace dsj::train
