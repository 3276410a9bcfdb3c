// The ranks' logs on this process's output, each line behind "[rank 3] ". Follows the files that
// the ranks write themselves, so that a slow reader never holds a rank up; the files stay the truth
// and keep everything. Not for several threads.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "agent/messages.h"

namespace dsj::agent {

class LogMirror {
 public:
  /// Behind by more than `behind_bytes_max`, it leaves out what lies between and says so.
  explicit LogMirror(int fd, int64_t behind_bytes_max = 8 << 20);

  /// From byte `from` of `path` on; the same again changes nothing, another one replaces it.
  void follow(int rank, const std::string& path, int64_t from);
  /// Writes what has come, as much as the reader takes. Never blocks.
  void turn();
  /// The rest, unfinished lines too, for at most `patience`.
  void finish(Time patience);

 private:
  struct Followed {
    std::string path;
    int64_t from = 0, next = 0;
    std::string partial;
  };
  bool take(int rank, Followed& log);
  void line(int rank, const std::string& text);
  /// True: nothing waits any more.
  bool send();

  const int fd_;
  const int64_t behind_bytes_max_;
  std::map<int, Followed> logs_;
  std::string waiting_;
};

}  // namespace dsj::agent
