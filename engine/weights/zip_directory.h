// The entries of a zip archive whose bytes lie in the file as they are (STORED): where each begins,
// so that it is read in ranges. The container is minizip's; zip64 included. Private to
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
};

/// By name. Reads the directory and the local headers. Refused, with the entry's name: compression,
/// encryption, an entry that lies outside the file, a name twice, a damaged directory.
Result<std::map<std::string, ZipEntry>> read_zip_directory(const ReadFile& file,
                                                           const std::string& path);

}  // namespace dsj::weights
