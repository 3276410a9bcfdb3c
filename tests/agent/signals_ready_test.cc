#include "agent/signals_ready.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace dsj::agent {
namespace {

using std::chrono::milliseconds;

/// A process that blocks SIGTERM once it is told to by SIGUSR1, which it blocks from the start.
class Loading {
 public:
  Loading() {
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, SIGUSR1);
    sigprocmask(SIG_BLOCK, &own, nullptr);
    pid = fork();
    if (pid == 0) {
      int got = 0;
      sigwait(&own, &got);
      sigaddset(&own, SIGTERM);
      sigprocmask(SIG_BLOCK, &own, nullptr);
      for (;;) pause();
    }
  }
  ~Loading() { end(); }
  void end() {
    if (pid < 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    pid = -1;
  }
  std::string status() const { return "/proc/" + std::to_string(pid) + "/status"; }

  pid_t pid;
};

TEST(SignalsReady, IsWaitedFor) {
  const Loading agent;
  EXPECT_FALSE(await_signals_ready(agent.status(), milliseconds(20))) << "it would be lost now";
  kill(agent.pid, SIGUSR1);
  EXPECT_TRUE(await_signals_ready(agent.status(), milliseconds(60'000)));
}

TEST(SignalsReady, OfAnotherProgramAreNotTheAgents) {
  Loading agent;
  kill(agent.pid, SIGUSR1);
  ASSERT_TRUE(await_signals_ready(agent.status(), milliseconds(60'000)));
  prctl(PR_SET_NAME, "other");
  EXPECT_FALSE(await_signals_ready(agent.status(), milliseconds(0)))
      << "the runtime, before it runs the agent";
  prctl(PR_SET_NAME, "agent_tests");
}

TEST(SignalsReady, OfAProcessThatHasEndedNeedsNoWait) {
  Loading agent;
  const std::string status = agent.status();
  agent.end();
  EXPECT_TRUE(await_signals_ready(status, milliseconds(0)));
}

}  // namespace
}  // namespace dsj::agent
