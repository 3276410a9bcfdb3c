// Whether saving in the background fits on this machine (job/plan/snapshot.h decides it).
// Tested by: tests/run/train_run_test.cc
#pragma once

#include <c10/core/Device.h>

#include "engine/train/inputs/inputs.h"
#include "engine/train/inputs/rank_env.h"
#include "job/plan/snapshot.h"

namespace dsj::train {

/// Reads this container's and this machine's memory.
plan::Snapshot snapshot_here(const Inputs& inputs, const RankEnv& env, at::Device device);

}  // namespace dsj::train
