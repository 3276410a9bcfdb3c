// Checks that all nodes write to one directory. Otherwise the first checkpoint, hours later, would
// lack the parts of the other nodes.
// Tested by: tests/engine/train/inputs/one_directory_test.cc
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/comm/collectives.h"

namespace dsj::train {

/// Rank 0 creates a file with a new name in `output_dir`, every rank looks for it, rank 0 removes
/// it. BadInput on every rank: names the lowest rank that lacks it, and its host. Collective.
Status check_one_directory(Files& files, const std::string& output_dir,
                           comm::Collectives& collectives, at::Device device);

}  // namespace dsj::train
