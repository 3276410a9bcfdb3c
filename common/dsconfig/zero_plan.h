// From a resolved config to the layout room's options: which flats a run has and what limits its
// schedule. One place, so that the memory model and every rank compute the same. Pure.
#pragma once

#include <vector>

#include "common/dsconfig/resolved.h"
#include "common/layout/offload.h"
#include "common/layout/partition.h"
#include "common/layout/schedule.h"
#include "common/layout/units.h"

namespace dsj::dsconfig {

/// The stage that runs: with one rank there is nothing to shard, and every stage is stage 0, but
/// for parameters that are to leave the device, which only stage 3 gathers.
int effective_stage(const ResolvedConfig& config, int world);

layout::FlatPlan plan_flats(const std::vector<layout::UnitSpec>& units,
                            const ResolvedConfig& config, int world);

/// Where optimizer state and parameter shards lie.
layout::OffloadPlan plan_offload(const layout::FlatPlan& plan, const ResolvedConfig& config,
                                 int world);
/// Whether the fp32 master of a flat lies in the optimizer's vectors (the first of them), and not
/// in the working copy or the parameter shard.
bool separate_master(const ResolvedConfig& config);
/// fp32 vectors that the optimizer keeps of a flat, a separate master included; frozen: none.
int optimizer_vectors(const layout::FlatLayout& flat, const ResolvedConfig& config);

layout::ScheduleLimits schedule_limits(const ResolvedConfig& config, int world);

}  // namespace dsj::dsconfig
