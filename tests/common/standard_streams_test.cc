#include "common/standard_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <random>
#include <string>

namespace dsj {
namespace {

/// The exit code of a child process that runs `body`.
int in_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool is_null_device(int descriptor) {
  struct stat found {
  }, null{};
  return fstat(descriptor, &found) == 0 && stat("/dev/null", &null) == 0 &&
         S_ISCHR(found.st_mode) && found.st_rdev == null.st_rdev;
}

TEST(StandardStreams, NoFileTakesTheNumberOfAClosedStream) {
  for (int closed = 0; closed < 8; ++closed) {
    EXPECT_EQ(in_child([closed] {
                for (int stream = 0; stream <= 2; ++stream) {
                  const int other = open("/", O_RDONLY | O_DIRECTORY);
                  dup2(other, stream);  // an open stream stays what it is
                  close(other);
                  if (closed >> stream & 1) close(stream);
                }
                open_standard_streams();
                for (int stream = 0; stream <= 2; ++stream)
                  if (is_null_device(stream) != bool(closed >> stream & 1)) return 1;
                return open("/dev/zero", O_RDONLY) > 2 ? 0 : 2;
              }),
              0)
        << closed;
  }
}

/// Prints lines of drawn lengths to `path`; 0 if lost_output() says that none is lost.
int print_to(const char* path, unsigned seed) {
  std::mt19937 draw(seed);
  if (!std::freopen(path, "w", stdout)) return 9;
  for (int line = 0; line < 20; ++line)
    std::fputs((std::string(draw() % 2000, 'x') + "\n").c_str(), stdout);
  const std::string lost = lost_output();
  return lost.empty() ? 0 : lost == "No space left on device" ? 1 : 2;
}

TEST(StandardStreams, LostOutputIsFoundAtTheEndAndBefore) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    EXPECT_NE(in_child([seed] { return print_to("/dev/full", seed); }), 0) << seed;
    EXPECT_EQ(in_child([seed] { return print_to("/dev/null", seed); }), 0) << seed;
  }
  EXPECT_EQ(in_child([] {  // a short text is lost at the flush
              if (!std::freopen("/dev/full", "w", stdout)) return 9;
              std::fputs("short\n", stdout);
              return lost_output() == "No space left on device" ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace dsj
