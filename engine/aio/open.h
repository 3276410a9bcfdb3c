// Creates a block file on a disk. Reserves its space at once, and selects the best implementation
// by trying each on the file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/aio/block_file.h"

namespace dsj::aio {

struct Created {
  std::unique_ptr<BlockFile> file;
  /// Why better implementations were not used, one sentence each; empty for io_uring with O_DIRECT.
  std::vector<std::string> passed_over;
};

/// Creates `path` with `bytes` (a multiple of kAlign) zero bytes and reserves the space. Tries
/// io_uring with O_DIRECT, then threads with O_DIRECT, then threads with the page cache. `only`:
/// "", or the implementation to try ("io_uring", "O_DIRECT threads", "threads"). Environment,
/// leaving no file behind: nothing works, or the disk is full (with the bytes needed and free).
/// Callers remove the file.
Result<Created> create_block_file(const std::string& path, int64_t bytes, const Options& options,
                                  const std::string& only = {});

}  // namespace dsj::aio
