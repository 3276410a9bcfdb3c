#include "cli/loopback.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dsj::cli {
namespace {

TEST(Loopback, ThisMachineReachesItself) {
  const Status there = check_loopback();
  EXPECT_TRUE(there) << there.error().to_string();
}

TEST(Loopback, WithoutTheInterfaceItIsTheSurroundingsFault) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {  // a network of its own has an interface lo that is down
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 && unshare(CLONE_NEWNET) != 0) _exit(77);
    const Status there = check_loopback();
    _exit(!there && there.error().kind == ErrorKind::Environment &&
                  there.error().hint.find("ip link set lo up") != std::string::npos
              ? 0
              : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no network namespace can be made here: NOT RUN";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace dsj::cli
