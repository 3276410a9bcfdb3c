// A block file on io_uring: one thread keeps the ring full, so requests progress while nobody
// waits.
#pragma once

#include <memory>
#include <string>

#include "engine/aio/block_file.h"

namespace dsj::aio {

/// Takes ownership of the descriptor if it succeeds. Environment, with the system's reason: this
/// build or this kernel gives us no io_uring (containers often forbid it).
Result<std::unique_ptr<BlockFile>> make_uring_file(int descriptor, const std::string& path,
                                                   int64_t size, const Options& options);

}  // namespace dsj::aio
