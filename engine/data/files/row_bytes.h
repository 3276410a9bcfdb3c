// The bytes of a data file as text of rows: as they lie there, or unpacked where the file is gzip or zstd, or
// as lines of JSON where it is Parquet or Arrow (columns.h), all by its content, whatever its name.
// Internal to engine/data.
//
// What is unpacked is kept in memory while it is small. Larger text is kept by the content of the packed
// file (content_cache.h): one process of a machine unpacks it, the others and the next run find it. With
// `keep` off it goes into a file without a name, which goes with the process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

struct UnpackOptions {
  std::string directory = "/tmp";      ///< of what is unpacked; made if it is missing
  int64_t memory_bytes_max = 8 << 20;  ///< larger content goes to the directory
  bool keep = false;                   ///< for other processes and runs
  /// Of what is kept; the oldest go first. What is younger than an hour stays in any case: all files of a
  /// run that is starting do.
  int64_t kept_bytes_max = int64_t{32} << 30;
  int64_t now = 0;                  ///< seconds since 1970
  int64_t process = 0;              ///< its id
  std::string columns_plugin = {};  ///< columns.h; empty: beside this program
};

struct RowBytes {
  std::unique_ptr<ReadFile> file;
  std::string content;  ///< the key of the packed file; empty: it is not packed, or nothing is kept
  bool lines = false;   ///< each line is a row as a JSON object, whatever the file's name
};

/// BadInput, with the path: a packed file that ends early or is damaged. Environment: the directory has
/// no room, or what reads Parquet is not there.
Result<RowBytes> open_row_bytes(Files& files, const std::string& path,
                                const UnpackOptions& options);

/// Where this machine unpacks: dsj/unpacked beside the row cache (row_cache.h), else $TMPDIR, else
/// /tmp.
std::string unpack_directory(const std::function<const char*(const char*)>& variable);

}  // namespace dsj::data
