#include "common/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>

namespace dsj {
namespace {

class TerminalTest : public testing::Test {
 protected:
  void SetUp() override {
    terminal_ = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal_ < 0) GTEST_SKIP() << "no terminals here: NOT RUN";
    if (const char* before = getenv("TERM")) before_ = before;
  }
  void TearDown() override {
    close(terminal_);
    before_.empty() ? unsetenv("TERM") : setenv("TERM", before_.c_str(), 1);
  }
  int terminal_ = -1;
  std::string before_;
};

TEST_F(TerminalTest, ADumbOneIsNotDrawnOver) {
  setenv("TERM", "xterm-256color", 1);
  EXPECT_TRUE(draws_over(terminal_));
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(draws_over(terminal_));
  unsetenv("TERM");
  EXPECT_TRUE(draws_over(terminal_));
}

TEST_F(TerminalTest, AFileIsNone) {
  const int file = open("/dev/null", O_WRONLY);
  EXPECT_FALSE(draws_over(file));
  close(file);
}

}  // namespace
}  // namespace dsj
