// Copies the ranks' logs to this process's output, each line behind "[rank 3] ". It follows the
// files that the ranks write, so a slow reader never holds up a rank, and the files keep
// what log_rotation.h leaves them. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "agent/wire/messages.h"

namespace dsj::agent {

class LogMirror {
 public:
  /// If it falls behind by more than `behind_bytes_max`, it skips what lies between and says so.
  explicit LogMirror(int fd, int64_t behind_bytes_max = 8 << 20);

  /// Follows `path` from byte `from` on. The same call again changes nothing; another one replaces
  /// it.
  void follow(int rank, const std::string& path, int64_t from);
  /// Writes what has come, as much as the reader takes. Never blocks.
  void turn();
  /// Writes the rest, unfinished lines too, for at most `patience`.
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
  /// True: nothing is waiting any more.
  bool send();

  const int fd_;
  const int64_t behind_bytes_max_;
  std::map<int, Followed> logs_;
  std::string waiting_;
};

}  // namespace dsj::agent
