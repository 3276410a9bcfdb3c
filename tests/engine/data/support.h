// Folders and files for the data tests.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/shared_files.h"

namespace dsj::data {

inline std::string fixtures() {
  return DSJ_SOURCE_DIR "/tests/engine/data/fixtures";
}

/// Directory of the real files next to the checkout; empty if it is missing.
inline std::string shared_dir() {
  const std::string dir = testing_support::shared_directory();
  return std::filesystem::is_directory(dir) ? dir : std::string();
}

/// A temporary folder, removed at the end of the test.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "dsj-data-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const std::string& text) const {
    const std::string file = path_ + "/" + name;
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }

 private:
  std::string path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

}  // namespace dsj::data
