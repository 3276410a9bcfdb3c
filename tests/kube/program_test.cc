#include "kube/program.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/support/soon.h"

namespace dsj::kube {
namespace {

Program shell(const std::string& script) {
  return {.command = {"sh", "-c", script}, .environment = {}};
}

TEST(Programs, HaveOurEnvironmentAndWhatIsAdded) {
  Program program = shell("echo $HOME-$ADDED-$TWICE; exit 3");
  ::setenv("ADDED", "ours", 1);
  program.environment = {{"ADDED", "theirs"}, {"TWICE", "1"}, {"TWICE", "2"}};
  const auto end = system_programs().run(program, kLong, {});
  ::unsetenv("ADDED");
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->output.ends_with("-theirs-2\n")) << end->output;
  EXPECT_EQ(end->exit_code, 3);
}

TEST(Programs, HaveNoStdinUnlessItIsAskedFor) {
  const auto end = system_programs().run(shell("cat; readlink /proc/self/fd/0"), kLong, {});
  ASSERT_TRUE(end);
  EXPECT_EQ(end->output, "/dev/null\n");
}

TEST(Programs, ASignalIsTheShellsExitCode) {
  const auto end = system_programs().run(shell("kill -9 $$"), kLong, {});
  ASSERT_TRUE(end);
  EXPECT_EQ(end->exit_code, 137);
}

TEST(Programs, OneThatIsNotThereIsNotFound) {
  for (const char* name : {"dsj-no-such-program", "/no/such/program"}) {
    const auto end = system_programs().run({.command = {name}, .environment = {}}, kLong, {});
    ASSERT_FALSE(end);
    EXPECT_EQ(end.error().kind, ProgramFailure::Kind::NotFound);
  }
  const auto folder = system_programs().run({.command = {"/tmp"}, .environment = {}}, kLong, {});
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().kind, ProgramFailure::Kind::NotStarted);
}

TEST(Programs, ATimeoutEndsIt) {
  const auto end =
      system_programs().run(shell("exec sleep 1000"), std::chrono::milliseconds(50), {});
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().kind, ProgramFailure::Kind::Timeout);
}

TEST(Programs, ACancelEndsIt) {
  const std::string begun = ::testing::TempDir() + "/program-begun";
  std::filesystem::remove(begun);
  Cancel cancel;
  std::thread other([&] {
    EXPECT_TRUE(soon([&] { return std::filesystem::exists(begun); }));
    cancel.cancel();
  });
  const auto end =
      system_programs().run(shell("touch " + begun + "; exec sleep 1000"), kLong, cancel);
  other.join();
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().kind, ProgramFailure::Kind::Cancelled);
}

// A plugin may leave a cache behind that keeps its stdout.
TEST(Programs, NobodyWaitsForWhatAProgramLeftBehind) {
  const auto end = system_programs().run(shell("sleep 1000 & echo $!"), kLong, {});
  ASSERT_TRUE(end);
  EXPECT_EQ(::kill(std::stoi(end->output), SIGKILL), 0);
}

TEST(Programs, OneThatPrintsWithoutEndIsEnded) {
  const auto end = system_programs().run(shell("exec yes"), kLong, {});
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().kind, ProgramFailure::Kind::TooLong);
}

}  // namespace
}  // namespace dsj::kube
