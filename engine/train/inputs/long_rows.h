// Warns at the start how many rows are truncated.
// Tested by: tests/run/not_finite_run_test.cc
#pragma once

#include "engine/train/inputs/events.h"
#include "engine/train/inputs/inputs.h"

namespace dsj::train {

/// Warns of and reports training rows that are longer than the trained length. Ignores rows that
/// cannot be read, which the loader refuses. Rank 0.
void tell_long_rows(const Inputs& in, const Events& events);

}  // namespace dsj::train
