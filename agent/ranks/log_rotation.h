// Limits the size of the ranks' logs. A rank writes to its file directly, so a full file is copied
// to FILE.1, replacing an older one, and then truncated, like logrotate's copytruncate. What a rank
// writes in the microseconds between the two may be lost. If the disk has no room for the copy,
// FILE.1 is deleted and the file truncated anyway, because a rank that cannot write may fail.
// Checks once a second, on its own thread. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "common/result.h"

namespace dsj::agent {

/// Environment variable with the maximum size of a rank's log in bytes; FILE.1 may have the same
/// size.
inline constexpr char kEnvLogBytesMax[] = "RANK_LOG_MAX_BYTES";
inline constexpr int64_t kLogBytesMaxDefault = 256 << 20;
/// With a smaller limit, a reader that follows the file could miss a truncation.
inline constexpr int64_t kLogBytesMaxLeast = 1 << 20;

/// `text` is the variable's value; null or empty means the default. BadInput: not a number, or too
/// small.
Result<int64_t> log_bytes_max(const char* text);
/// FILE.1
std::string rotated_log(const std::string& path);

class LogRotation {
 public:
  /// `every` is the time between checks on the thread, and before the first one.
  explicit LogRotation(int64_t bytes_max, std::chrono::seconds every = std::chrono::seconds(1));
  ~LogRotation();

  void watch(const std::string& path);
  void forget(const std::string& path);
  /// Checks every file once.
  void look();

 private:
  void run();
  void rotate(const std::string& path);

  const int64_t bytes_max_;
  const std::chrono::seconds every_;
  std::mutex mutex_;
  std::mutex looking_;
  std::condition_variable wake_;
  std::set<std::string> paths_;
  bool warned_ = false;  ///< about a disk without room, once
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace dsj::agent
