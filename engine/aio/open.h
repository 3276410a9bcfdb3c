// Creates a block file on a disk. Its space is taken at once, and the best implementation that
// works here is found by trying it on the file itself.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/aio/block_file.h"

namespace dsj::aio {

struct Created {
  std::unique_ptr<BlockFile> file;
  /// Why better implementations were not used, one sentence each; empty: io_uring with O_DIRECT.
  std::vector<std::string> passed_over;
};

/// Creates `path` with `bytes` (a multiple of kAlign) zero bytes whose space is taken on the disk.
/// It tries io_uring with O_DIRECT, then threads with O_DIRECT, then threads through the page
/// cache. `only`: "", or the one implementation to try ("io_uring", "O_DIRECT threads", "threads").
/// Environment; leaves no file behind: nothing works, or the disk is full (with the bytes needed
/// and free). The caller removes the file.
Result<Created> create_block_file(const std::string& path, int64_t bytes, const Options& options,
                                  const std::string& only = {});

}  // namespace dsj::aio
