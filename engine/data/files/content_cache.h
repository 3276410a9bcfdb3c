// A directory of files that are kept by the content they were made from: named AGE-KEY.SUFFIX, published by a
// rename, so that jobs may write the same one at the same time; the oldest go when there is no more
// room. Internal to engine/data.
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
  int64_t bytes_max = 0;     ///< of all entries; the oldest go first
  int64_t kept_seconds = 0;  ///< entries younger than that stay, whatever their size
  int64_t now = 0;           ///< seconds since 1970: the age of what is stored
  int64_t process = 0;       ///< its id: no other process writes under its temporary names
};

/// One caller at a time; other processes may use the same directory.
class ContentCache {
 public:
  ContentCache(Files& files, ContentCacheOptions options)
      : files_(files), options_(std::move(options)) {}

  /// Paths of the entries of a key. None: there are none, or no directory.
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

/// What only one process of this machine does at a time; the others wait. Held until it is destroyed. It only
/// saves work: where it cannot be had (no directory, a file system without locks), nobody waits.
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
