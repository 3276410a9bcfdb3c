// Copies the ranks' logs to this process's output, each line prefixed with "[rank 3] ". It reads
// the log files, so a slow reader never blocks a rank, and the files keep what log_rotation.h
// leaves. For one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "agent/wire/messages.h"

namespace dsj::agent {

class LogMirror {
 public:
  /// If it falls behind by more than `behind_bytes_max`, it skips the bytes in between and says so.
  explicit LogMirror(int fd, int64_t behind_bytes_max = 8 << 20);

  /// Follows `path` from byte `from` on. Repeating a call changes nothing; a different call
  /// replaces the previous one.
  void follow(int rank, const std::string& path, int64_t from);
  /// Writes new lines, as many as the reader accepts. Never blocks.
  void turn();
  /// Writes the rest, including unfinished lines, for at most `patience`.
  void finish(Time patience);

 private:
  struct Followed {
    std::string path;
    int64_t from = 0, next = 0;
    std::string partial;
  };
  bool take(int rank, Followed& log);
  bool take_part(int rank, const std::string& path, Followed& log);
  void line(int rank, const std::string& text);
  /// Returns true if all is written.
  bool send();

  const int fd_;
  const int64_t behind_bytes_max_;
  std::map<int, Followed> logs_;
  std::string waiting_;
};

}  // namespace dsj::agent
