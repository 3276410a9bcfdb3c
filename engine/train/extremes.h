// The least and the greatest of what the ranks saw: metrics of a step or an evaluation that are no sums.
// Tested by: tests/engine/train/preference_test.cc
#pragma once

#include <c10/core/Device.h>

#include <span>

#include "engine/comm/collectives.h"
#include "engine/optim/preference.h"

namespace dsj::train {

/// Puts the least and the greatest values over the ranks (optim::extreme_of) into `joined`, sums over the ranks;
/// `own`: this rank's. Collective.
void join_extremes(const dsconfig::Objective& objective, comm::Collectives& collectives,
                   at::Device device, std::span<const optim::Tally> own,
                   std::span<optim::Tally> joined);

}  // namespace dsj::train
