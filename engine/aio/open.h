// Creating a block file on a disk: space taken at once, and the best implementation that works
// here, tried out on the file itself.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/aio/block_file.h"

namespace dsj::aio {

struct Created {
  std::unique_ptr<BlockFile> file;
  /// Why a better implementation was passed over, one sentence each; empty: io_uring with O_DIRECT.
  std::vector<std::string> passed_over;
};

/// Creates `path` with `bytes` (a multiple of kAlign) zero bytes that have their place on the disk.
/// io_uring with O_DIRECT, else threads with O_DIRECT, else threads through the page cache.
/// `only`: "" as said, or the name of one implementation ("io_uring", "O_DIRECT threads",
/// "threads"), which fails where it does not work. Errors (Environment) leave no file behind; a
/// full disk is named with the bytes needed and the bytes free. The file is the caller's to remove.
Result<Created> create_block_file(const std::string& path, int64_t bytes, const Options& options,
                                  const std::string& only = {});

}  // namespace dsj::aio
