#include "common/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace dsj {

void open_standard_streams() {
  for (int stream = 0; stream <= 2; ++stream) {
    if (fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is `stream`: the ones below it are open.
    if (open("/dev/null", O_RDWR) == -1) _exit(3);
  }
}

std::string lost_output() {
  const bool failed_before = std::ferror(stdout) != 0;
  errno = 0;
  if (std::fflush(stdout) != 0 && errno != 0) return std::strerror(errno);
  return failed_before ? "an earlier write failed" : "";
}

int code_after_output(const std::string& who, int code, int lost_code) {
  const std::string lost = lost_output();
  if (lost.empty()) return code;
  std::fprintf(stderr, "%s: standard output: %s (the output is incomplete)\n", who.c_str(),
               lost.c_str());
  return code == 0 ? lost_code : code;
}

}  // namespace dsj
