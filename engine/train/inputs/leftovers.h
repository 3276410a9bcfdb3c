// Removes what dead attempts left, once at the start of an attempt, before it reads or writes
// anything. A process killed during a save leaves a whole checkpoint's bytes, and the next save
// needs them.
// Tested by: tests/engine/train/inputs/leftovers_test.cc
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "common/files/files.h"
#include "engine/comm/collectives.h"
#include "job/job_file.h"

namespace dsj::train {

/// Removes checkpoints that were being saved, replaced or deleted, and incomplete exports. Rank 0
/// does it; each rank's aio::Scratch removes the rank's offload files. Returns this rank's warnings
/// about what could not be removed. Collective: afterwards all ranks see the same directory.
std::vector<std::string> clear_leftovers(Files& files, const JobFile& job,
                                         comm::Collectives& collectives, at::Device device);

}  // namespace dsj::train
