// A block file on io_uring: one thread keeps the ring full, so that requests progress while no
// thread waits.
#pragma once

#include <memory>
#include <string>

#include "engine/aio/block_file.h"

namespace dsj::aio {

/// Takes ownership of the descriptor on success. Environment, with the system's reason: io_uring is
/// not available in this build or kernel (containers often forbid it).
Result<std::unique_ptr<BlockFile>> make_uring_file(int descriptor, const std::string& path,
                                                   int64_t size, const Options& options);

}  // namespace dsj::aio
