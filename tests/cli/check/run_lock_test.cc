// Who holds an output directory, and whether its run was killed.
#include "cli/check/run_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;

class RunLockTest : public testing::Test {
 protected:
  void SetUp() override {
    out_ = fs::path(testing::TempDir()) / ("run_lock_" + std::to_string(getpid()));
    fs::remove_all(out_);
  }
  void TearDown() override { fs::remove_all(out_); }
  fs::path out_;
  const nlohmann::json running_ = {{"phase", "Running"}};
};

TEST_F(RunLockTest, ASecondRunIsRefused) {
  std::optional first(OutputLock::take(out_));
  ASSERT_TRUE(*first);
  const auto second = OutputLock::take(out_);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("pid " + std::to_string(getpid())), std::string::npos);
  first.reset();
  EXPECT_TRUE(OutputLock::take(out_));
}

TEST_F(RunLockTest, ALinkToNowhereIsNamed) {
  fs::create_directories(out_);
  fs::create_symlink(out_ / "gone", out_ / "link");
  const auto refused = OutputLock::take(out_ / "link");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::BadInput);
  EXPECT_NE(refused.error().message.find("is a link to " + (out_ / "gone").string()),
            std::string::npos)
      << refused.error().message;
}

TEST_F(RunLockTest, ARunningStatusWithoutAHolderWasKilled) {
  EXPECT_FALSE(was_killed(out_, running_)) << "a cluster's run has no lock here";
  {
    const auto lock = OutputLock::take(out_);
    EXPECT_FALSE(was_killed(out_, running_)) << "the holder lives";
  }
  for (const char* phase : {"Pending", "Running", "Restarting", "Stopping"})
    EXPECT_TRUE(was_killed(out_, {{"phase", phase}})) << phase;
  for (const char* phase : {"Complete", "Failed", "Interrupted"})
    EXPECT_FALSE(was_killed(out_, {{"phase", phase}})) << phase;
  EXPECT_FALSE(was_killed(out_, nullptr));
  EXPECT_TRUE(OutputLock::take(out_)) << "who asks holds nothing";
}

/// The kernel releases the lock after SIGKILL, as after a lost machine.
TEST_F(RunLockTest, AKilledHolderHoldsNothing) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = OutputLock::take(out_);
    const char byte = lock ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  EXPECT_FALSE(was_killed(out_, running_));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(was_killed(out_, running_));
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace dsj::cli
