// A directory of files that are keyed by the content from which they were made. Files are named
// AGE-KEY.SUFFIX and published by a rename, so that jobs may write the same one concurrently;
// the oldest are removed when space runs out. Internal to engine/data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

struct ContentCacheOptions {
  std::string directory;
  std::string suffix;        ///< ".rows"; other files of the directory are left alone
  int64_t bytes_max = 0;     ///< limit for all entries; the oldest are removed first
  int64_t kept_seconds = 0;  ///< younger entries are never removed
  int64_t now = 0;           ///< seconds since 1970; the age of new entries
  int64_t process = 0;       ///< process id, which makes temporary names unique
};

/// One caller at a time; other processes may use the same directory.
class ContentCache {
 public:
  ContentCache(Files& files, ContentCacheOptions options)
      : files_(files), options_(std::move(options)) {}

  /// Paths of the entries with this key. Empty also if the directory is missing.
  std::vector<std::string> find(const std::string& key) const;
  /// Where to write an entry before it is published. Makes the directory.
  Result<std::string> temporary(const std::string& key) const;
  /// Gives the temporary file its name, and removes the oldest entries until the rest fits.
  Status publish(const std::string& key);
  /// The path that an entry gets.
  std::string path(const std::string& key) const;
  /// A name beside the entries that all processes agree on, for a lock.
  std::string lock_path(const std::string& key) const;

 private:
  Status prune();
  Files& files_;
  const ContentCacheOptions options_;
};

/// A lock between the processes of this machine, held until it is destroyed; others wait. It only
/// saves work: if it cannot be taken (no directory, a file system without locks), no process waits.
class ProcessLock {
 public:
  explicit ProcessLock(std::string path);
  ~ProcessLock();
  ProcessLock(const ProcessLock&) = delete;
  ProcessLock& operator=(const ProcessLock&) = delete;

 private:
  std::string path_;
  int file_ = -1;
};

}  // namespace dsj::data
