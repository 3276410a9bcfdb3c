// A block file on io_uring: one thread keeps the ring full, so requests move on while nobody waits.
#pragma once

#include <memory>
#include <string>

#include "engine/aio/block_file.h"

namespace dsj::aio {

/// Takes the descriptor when it succeeds. Error (Environment): this build or this kernel has no
/// io_uring for us (containers often forbid it), with the system's reason.
Result<std::unique_ptr<BlockFile>> make_uring_file(int descriptor, const std::string& path,
                                                   int64_t size, const Options& options);

}  // namespace dsj::aio
