// A checkpoint that the arguments name, which may be DeepSpeed's. Rank 0 looks which of both it is and lists its files; the
// others are told, so that a directory with two names for each rank is not listed by each rank.
// Tested by: tests/engine/deepspeed/train/frozen_test.cc
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/comm/collectives.h"
#include "engine/deepspeed/folder.h"

namespace dsj::train {

/// nullopt: it is none of DeepSpeed's. `universal`: find_folder's. Error: rank 0's own; on the others Transient. Collective.
Result<std::optional<deepspeed::Folder>> deepspeed_folder(Files& files, const std::string& path,
                                                          bool universal,
                                                          comm::Collectives& collectives,
                                                          at::Device device);

}  // namespace dsj::train
