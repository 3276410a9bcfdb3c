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

/// The real files beside the checkout; empty when they are not there.
inline std::string shared_dir() {
  const std::string dir = testing_support::shared_directory();
  return std::filesystem::is_directory(dir) ? dir : std::string();
}

/// A folder of one test, removed at its end.
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
