// Reads the directory of a zip archive with uncompressed (STORED) entries: the position of each, so
// that it can be read in ranges. minizip reads the container, including zip64. Internal to
// engine/weights.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::weights {

struct ZipEntry {
  int64_t begin = 0;  ///< first byte, from the start of the file
  int64_t bytes = 0;
  uint32_t crc32 = 0;  ///< of the bytes, from the archive
};

/// Entries by name. Reads the directory and the local headers. Error, with the entry's name:
/// compression, encryption, an entry outside the file, a repeated name, a damaged directory.
Result<std::map<std::string, ZipEntry>> read_zip_directory(const ReadFile& file,
                                                           const std::string& path);

}  // namespace dsj::weights
