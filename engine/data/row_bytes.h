// The bytes of a data file: as they lie there, or unpacked where the file is gzip or zstd by its
// content, whatever its name. Internal to engine/data.
//
// What is unpacked is kept in memory while it is small, else in a file without a name, which goes
// with the process: memory is bounded, and nothing is left behind.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

struct UnpackOptions {
  std::string directory = "/tmp";      ///< of what is unpacked; made if it is missing
  int64_t memory_bytes_max = 8 << 20;  ///< larger content goes to the directory
};

/// BadInput, with the path: a gzip or zstd file that ends early or is damaged. Environment: the
/// directory has no room.
Result<std::unique_ptr<ReadFile>> open_row_bytes(Files& files, const std::string& path,
                                                 const UnpackOptions& options);

/// Where this machine unpacks: dsj/unpacked beside the row cache (row_cache.h), else $TMPDIR, else
/// /tmp.
std::string unpack_directory(const std::function<const char*(const char*)>& variable);

}  // namespace dsj::data
