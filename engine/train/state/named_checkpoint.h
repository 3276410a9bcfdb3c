// Opens a checkpoint that the arguments name and that may be DeepSpeed's. Only rank 0 lists its
// files and tells the others, because it has two files per rank, and listing it on every rank is
// slow.
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

/// nullopt if not DeepSpeed's. `universal`: as find_folder's. Collective. Error: rank 0's; on
/// others Transient.
Result<std::optional<deepspeed::Folder>> deepspeed_folder(Files& files, const std::string& path,
                                                          bool universal,
                                                          comm::Collectives& collectives,
                                                          at::Device device);

}  // namespace dsj::train
