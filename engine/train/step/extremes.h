// Minimum and maximum over the ranks, for metrics of a step or an evaluation that are not sums.
// Tested by: tests/engine/train/preference_test.cc
#pragma once

#include <c10/core/Device.h>

#include <span>

#include "engine/comm/collectives.h"
#include "engine/optim/preference.h"

namespace dsj::train {

/// Overwrites the minima and maxima in `joined` (optim::extreme_of), whose other values are sums
/// over the ranks, with those of all ranks. `own`: this rank's values. Collective.
void join_extremes(const dsconfig::Objective& objective, comm::Collectives& collectives,
                   at::Device device, std::span<const optim::Tally> own,
                   std::span<optim::Tally> joined);

}  // namespace dsj::train
