// A folder of small files in memory, for the import tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "common/files/memory_files.h"

namespace dsj::jobimport {

class Folder {
 public:
  Folder& add(const std::string& path, const std::string& text) {
    EXPECT_TRUE(files.make_dirs(path_parent(path)).has_value());
    EXPECT_TRUE(files.write_synced(path, text).has_value());
    return *this;
  }
  MemoryFiles files;
};

inline bool any_contains(const std::vector<std::string>& lines, const std::string& part) {
  for (const std::string& line : lines)
    if (line.find(part) != std::string::npos) return true;
  return false;
}

}  // namespace dsj::jobimport
