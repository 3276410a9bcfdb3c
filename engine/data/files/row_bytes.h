// Opens a data file as text of rows: as it is; decompressed if it is gzip or zstd; or converted
// to lines of JSON if it is Parquet or Arrow (columns.h). The content decides, not the name.
// Internal to engine/data.
//
// Small text is unpacked into memory. Larger text is cached under the content of the packed
// file (content_cache.h): one process of a machine unpacks it, the others and the next run
// reuse it. Without `keep` it goes into an unlinked file, which disappears with the process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

struct UnpackOptions {
  std::string directory = "/tmp";      ///< for unpacked text; created if it is missing
  int64_t memory_bytes_max = 8 << 20;  ///< larger content goes to the directory
  bool keep = false;                   ///< cache it for other processes and runs
  /// Size limit of the cache; the oldest entries are removed first. Entries younger than an
  /// hour are never removed, because a starting run may be about to open them.
  int64_t kept_bytes_max = int64_t{32} << 30;
  int64_t now = 0;                  ///< seconds since 1970
  int64_t process = 0;              ///< process id
  std::string columns_plugin = {};  ///< columns.h; empty means next to this program
};

struct RowBytes {
  std::unique_ptr<ReadFile> file;
  std::string content;  ///< key of the packed file; empty if it is not packed or not cached
  bool lines = false;   ///< each line is a row as a JSON object, regardless of the file's name
};

/// Errors: BadInput, with the path, if a packed file is truncated or damaged; Environment if
/// the directory is full or the reader of Parquet is missing.
Result<RowBytes> open_row_bytes(Files& files, const std::string& path,
                                const UnpackOptions& options);

/// The directory for unpacked text: dsj/unpacked next to the row cache (row_cache.h), else
/// $TMPDIR, else /tmp.
std::string unpack_directory(const std::function<const char*(const char*)>& variable);

}  // namespace dsj::data
