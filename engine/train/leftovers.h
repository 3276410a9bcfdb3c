// What dead attempts left, cleared once when an attempt starts, before it reads or writes anything: a
// process that was killed in mid-save leaves a whole checkpoint's bytes, and the next save needs them.
// Tested by: tests/engine/train/leftovers_test.cc
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "common/files/files.h"
#include "engine/comm/collectives.h"
#include "job/job_file.h"

namespace dsj::train {

/// Checkpoints that were being saved, replaced or deleted, and half an export. Rank 0 clears them; the
/// offload files of a rank are cleared by its own aio::Scratch. No error: what could not be removed is
/// a warning, of this rank. Collective: when it returns, all ranks see the same directory.
std::vector<std::string> clear_leftovers(Files& files, const JobFile& job,
                                         comm::Collectives& collectives, at::Device device);

}  // namespace dsj::train
