// Keeps the logs that ranks write small. A rank writes to its file itself, so a file that is full is copied to FILE.1,
// in place of an older one, and then cut to nothing, as logrotate's copytruncate does. What a rank writes in the moment
// between the two, microseconds, may be lost. If the disk has no room for the copy, FILE.1 goes and the file is cut all the
// same: a rank that cannot write may end. Looks once a second, on a thread of its own. Thread-safe.
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

/// The environment variable with the most bytes of a rank's log; FILE.1 has as many.
inline constexpr char kEnvLogBytesMax[] = "RANK_LOG_MAX_BYTES";
inline constexpr int64_t kLogBytesMaxDefault = 256 << 20;
/// Below this a reader that follows the file could miss that it was cut.
inline constexpr int64_t kLogBytesMaxLeast = 1 << 20;

/// `text`: the variable's value; null or empty: the default. BadInput: it is no number, or too small.
Result<int64_t> log_bytes_max(const char* text);
/// FILE.1
std::string rotated_log(const std::string& path);

class LogRotation {
 public:
  /// `every`: how often the files are looked at on a thread of its own, first after that time.
  explicit LogRotation(int64_t bytes_max, std::chrono::seconds every = std::chrono::seconds(1));
  ~LogRotation();

  void watch(const std::string& path);
  void forget(const std::string& path);
  /// One look at every file.
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
  bool warned_ = false;  ///< of a disk without room; once
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace dsj::agent
