#include "agent/ranks/log_mirror.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace dsj::agent {
namespace {

struct MirrorTest : testing::Test {
  std::string file = testing::TempDir() + "mirror-" + std::to_string(getpid()) + ".log";
  int ends[2];
  void SetUp() override {
    std::filesystem::remove(file);
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  void TearDown() override {
    close(ends[0]);
    close(ends[1]);
    std::filesystem::remove(file);
  }
  void append(const std::string& text) { std::ofstream(file, std::ios::app) << text; }
  std::string output() {
    std::string text;
    char buffer[65536];
    for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<size_t>(got));
    }
    return text;
  }
};

TEST_F(MirrorTest, WholeLinesBehindTheRank) {
  append("old\n");
  LogMirror mirror(ends[1]);
  mirror.follow(3, file, 4);
  mirror.turn();
  EXPECT_EQ(output(), "");
  append("one\ntw");
  mirror.turn();
  EXPECT_EQ(output(), "[rank 3] one\n");
  append("o\n\nlast");
  mirror.follow(3, file, 4);  // the same again
  mirror.turn();
  EXPECT_EQ(output(), "[rank 3] two\n[rank 3] \n");
  mirror.finish(Time(100));
  EXPECT_EQ(output(), "[rank 3] last\n");
}

TEST_F(MirrorTest, TheNextAttemptBeginsBehindTheLastWordsOfTheOneBefore) {
  LogMirror mirror(ends[1]);
  mirror.follow(0, file, 0);
  append("dying word");
  mirror.follow(0, file, 10);
  append("again\n");
  mirror.turn();
  EXPECT_EQ(output(), "[rank 0] dying word\n[rank 0] again\n");
}

TEST_F(MirrorTest, AReaderThatIsSlowHoldsNobodyUpAndMissesNothingThatFits) {
  std::string expected;
  LogMirror mirror(ends[1]);
  mirror.follow(1, file, 0);
  std::string text;
  for (int i = 0; i < 20'000; ++i) {
    text += "line " + std::to_string(i) + "\n";
    expected += "[rank 1] line " + std::to_string(i) + "\n";
  }
  append(text);
  for (int i = 0; i < 100; ++i) mirror.turn();  // the pipe is full long before
  std::string got = output();
  EXPECT_LT(got.size(), expected.size());
  while (got.size() < expected.size()) {
    mirror.turn();
    const std::string more = output();
    ASSERT_FALSE(more.empty());
    got += more;
  }
  EXPECT_EQ(got, expected);
}

TEST_F(MirrorTest, TooFarBehindItSaysWhatItLeavesOut) {
  LogMirror mirror(ends[1], 1000);
  mirror.follow(2, file, 0);
  append(std::string(5000, 'x') + "\nthe end\n");
  mirror.turn();
  const std::string text = output();
  EXPECT_NE(text.find("4509 bytes left out here: see " + file), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("[rank 2] the end\n"));
}

TEST_F(MirrorTest, AReaderThatIsGoneIsNoHarm) {
  close(ends[0]);
  const auto mirror = [&] {
    signal(SIGPIPE, SIG_IGN);  // as in the agent
    LogMirror mirror(ends[1]);
    mirror.follow(0, file, 0);
    append("x\n");
    mirror.turn();
    mirror.finish(Time(50));
    std::_Exit(7);
  };
  EXPECT_EXIT(mirror(), testing::ExitedWithCode(7), "");
  ends[0] = open("/dev/null", O_RDONLY);
}

}  // namespace
}  // namespace dsj::agent
