// From a resolved config to the layout room's options: which flats a run has and what limits its
// schedule. One place, so that the memory model and every rank compute the same. Pure.
#pragma once

#include <vector>

#include "common/dsconfig/resolved.h"
#include "common/layout/partition.h"
#include "common/layout/schedule.h"
#include "common/layout/units.h"

namespace dsj::dsconfig {

/// The stage that runs: with one rank there is nothing to shard, and every stage is stage 0.
int effective_stage(const ResolvedConfig& config, int world);

layout::FlatPlan plan_flats(const std::vector<layout::UnitSpec>& units,
                            const ResolvedConfig& config, int world);

layout::ScheduleLimits schedule_limits(const ResolvedConfig& config, int world);

}  // namespace dsj::dsconfig
