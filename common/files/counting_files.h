// Counts operations of the file port, per path and in total. Tests check what a rank reads.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/files/files.h"

namespace dsj {

struct FileCounts {
  int64_t bytes_read = 0, bytes_written = 0;
  int64_t reads = 0, writes = 0;  ///< calls of ReadFile::read and WriteFile::append
  int64_t opens = 0;              ///< for reading or writing
  int64_t lists = 0;              ///< of a directory
};

/// Thread-safe. `inner` must outlive it. Files opened through it may outlive it.
class CountingFiles final : public Files {
 public:
  explicit CountingFiles(Files& inner);

  /// All zero for a path that was never opened.
  FileCounts of(const std::string& path) const;
  FileCounts total() const;
  void reset();

  Result<std::unique_ptr<ReadFile>> open_read(const std::string& path) override;
  Result<std::unique_ptr<WriteFile>> create_write(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Result<bool> exchange(const std::string& a, const std::string& b) override;
  Status remove(const std::string& path) override;
  Status make_dir(const std::string& path) override;
  Result<std::vector<DirEntry>> list_dir(const std::string& path) override;
  Result<EntryKind> kind(const std::string& path) override;
  Status sync_dir(const std::string& path) override;

  struct Table {
    std::mutex mutex;
    std::map<std::string, FileCounts> counts;
  };

 private:
  Files& inner_;
  std::shared_ptr<Table> table_;  ///< shared with the open files
};

}  // namespace dsj
