#include "cli/run/loopback.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace dsj::cli {
namespace {

/// Runs `check` in a network namespace with lo down. False if none can be created here.
template <typename Check>
bool in_own_network(Check check, int& status) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 && unshare(CLONE_NEWNET) != 0) _exit(77);
    _exit(check());
  }
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status) != 77;
}

TEST(Loopback, ThisMachineReachesItself) {
  const auto there = loopback_address();
  ASSERT_TRUE(there) << there.error().to_string();
  EXPECT_TRUE(*there == "127.0.0.1" || *there == "::1") << *there;
}

TEST(Loopback, WithoutTheInterfaceItIsAnEnvironmentError) {
  int status = 0;
  const bool made = in_own_network(
      [] {
        const auto there = loopback_address();
        return !there && there.error().kind == ErrorKind::Environment &&
                       there.error().hint.find("ip link set lo up") != std::string::npos
                   ? 0
                   : 1;
      },
      status);
  if (!made) GTEST_SKIP() << "no network namespace can be made here: NOT RUN";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Loopback, UsesIpv6IfThereIsNoIpv4) {
  int status = 0;
  const bool made = in_own_network(
      [] {
        if (std::system("ip link set lo up && ip addr del 127.0.0.1/8 dev lo") != 0) return 77;
        const auto there = loopback_address();
        return there && *there == "::1" ? 0 : 1;
      },
      status);
  if (!made) GTEST_SKIP() << "no network with IPv6 alone can be made here: NOT RUN";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace dsj::cli
