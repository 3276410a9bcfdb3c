// With real processes: /bin/sh does what ranks do.
#include "agent/ranks/spawn.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/soon.h"

namespace dsj::agent {
namespace {

std::string temporary(const std::string& name) {
  return testing::TempDir() + "spawn-" + std::to_string(getpid()) + "-" + name;
}
std::string content(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}
ChildExit wait_for(pid_t pid) {
  siginfo_t info;
  waitid(P_PID, pid, &info, WEXITED | WNOWAIT);
  const auto exit = reap(pid);
  EXPECT_TRUE(exit);
  return exit.value_or(ChildExit{-1, -1});
}
/// True once every holder of the pipe's write end is gone.
bool closed_by_all(int fd) {
  pollfd entry{fd, POLLIN, 0};
  char byte;
  return poll(&entry, 1, std::chrono::milliseconds(kLong).count()) == 1 && read(fd, &byte, 1) == 0;
}

TEST(Spawn, EnvironmentLogAndExitCode) {
  const std::string log = temporary("log");
  std::filesystem::remove(log);
  std::ofstream(log) << "header\n";
  const auto pid = spawn({.command = {"/bin/sh", "-c", "echo $WORD; echo bad >&2; exit 7"},
                          .environment = {"WORD=hello"},
                          .log_file = log});
  ASSERT_TRUE(pid) << pid.error().to_string();
  const ChildExit exit = wait_for(*pid);
  EXPECT_EQ(exit.exit_code, 7);
  EXPECT_EQ(exit.signal, 0);
  EXPECT_EQ(content(log), "header\nhello\nbad\n");
  EXPECT_EQ(tail_of(log, 7, 100), "hello\nbad");
  EXPECT_EQ(tail_of(log, 0, 6), "bad") << "whole lines only";
  EXPECT_EQ(tail_of(temporary("absent"), 0, 6), "");
}

TEST(Spawn, ProgramThatDoesNotExist) {
  const auto pid = spawn({.command = {"/nonexistent/dsj-train"}});
  ASSERT_FALSE(pid);
  EXPECT_EQ(pid.error().kind, ErrorKind::Environment);
  EXPECT_NE(pid.error().to_string().find("/nonexistent/dsj-train: cannot start it: No such file"),
            std::string::npos);
}

TEST(Spawn, SignalReachesTheWholeGroupAndIsTold) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const auto pid =
      spawn({.command = {"/bin/sh", "-c", "sleep 1000 & wait"}, .keep_fds = {ends[1]}});
  ASSERT_TRUE(pid);
  close(ends[1]);
  EXPECT_FALSE(reap(*pid));
  signal_group(*pid, SIGKILL);
  EXPECT_EQ(wait_for(*pid).signal, SIGKILL);
  EXPECT_TRUE(closed_by_all(ends[0])) << "the grandchild lives";
  close(ends[0]);
}

TEST(Spawn, WhatAChildLeavesBehindIsKilledWhenItIsReaped) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const auto pid =
      spawn({.command = {"/bin/sh", "-c", "sleep 1000 & exit 3"}, .keep_fds = {ends[1]}});
  ASSERT_TRUE(pid);
  close(ends[1]);
  EXPECT_EQ(wait_for(*pid).exit_code, 3);
  EXPECT_TRUE(closed_by_all(ends[0]));
  close(ends[0]);
}

TEST(Spawn, ChildDiesWithItsParent) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t parent = fork();
  if (parent == 0) {  // an agent that is killed while its rank runs
    const auto pid = spawn({.command = {"/bin/sleep", "1000"}, .keep_fds = {ends[1]}});
    _exit(pid ? 0 : 1);
  }
  close(ends[1]);
  int status = 0;
  waitpid(parent, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(closed_by_all(ends[0]));
  close(ends[0]);
}

TEST(Spawn, OnlyTheNamedDescriptorsAreInherited) {
  int leaky[2], kept[2];
  ASSERT_EQ(pipe(leaky), 0);  // without CLOEXEC, as a library would
  ASSERT_EQ(pipe2(kept, O_CLOEXEC), 0);
  const std::string script = "test ! -e /proc/self/fd/" + std::to_string(leaky[1]) +
                             " && test -e /proc/self/fd/" + std::to_string(kept[1]);
  const auto pid = spawn({.command = {"/bin/sh", "-c", script}, .keep_fds = {kept[1]}});
  ASSERT_TRUE(pid);
  EXPECT_EQ(wait_for(*pid).exit_code, 0);
  for (int fd : {leaky[0], leaky[1], kept[0], kept[1]}) close(fd);
}

TEST(Spawn, ChildStartsWithNoSignalBlocked) {
  const auto blocked = signal_fd({SIGUSR1});
  ASSERT_TRUE(blocked);
  const auto pid = spawn({.command = {"/bin/sh", "-c", "kill -USR1 $$; sleep 5"}});
  ASSERT_TRUE(pid);
  EXPECT_EQ(wait_for(*pid).signal, SIGUSR1);
  raise(SIGUSR1);
  EXPECT_EQ(read_signals(*blocked), std::vector<int>{SIGUSR1});
  close(*blocked);
}

}  // namespace
}  // namespace dsj::agent
