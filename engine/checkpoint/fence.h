// Determines which attempt owns a directory of checkpoints. The agent writes checkpoints/attempt
// before ranks start; a dead attempt reads a larger number there and publishes nothing.
// Tested by: tests/engine/checkpoint/checkpoint_test.cc
#pragma once

#include <cstdint>
#include <string>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::checkpoint {

/// The number in checkpoints_dir/attempt; 0 if there is no such file, and so no agent. Environment:
/// the file has no number.
Result<int64_t> owner_of(Files& files, const std::string& checkpoints_dir);

}  // namespace dsj::checkpoint
