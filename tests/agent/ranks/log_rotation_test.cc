#include "agent/ranks/log_rotation.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/ranks/log_mirror.h"
#include "agent/ranks/ranks.h"

namespace dsj::agent {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// The thread of a rotation does not look: the tests do.
constexpr std::chrono::seconds kNever(100'000);

struct RotationTest : testing::Test {
  fs::path folder = fs::path(testing::TempDir()) / ("rotation-" + std::to_string(getpid()));
  std::string file = folder / "rank-0.log";
  void SetUp() override {
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }
  /// As a rank does, whose descriptor stays open.
  int open_as_rank() { return open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644); }
  static void say(int fd, const std::string& text) {
    ASSERT_EQ(write(fd, text.data(), text.size()), std::ssize(text));
  }
  static std::string text_of(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
};

TEST_F(RotationTest, AFullLogIsKeptOnceAndTheRankWritesOn) {
  LogRotation rotation(10, kNever);
  rotation.watch(file);
  const int rank = open_as_rank();
  say(rank, "0123456789");
  rotation.look();
  EXPECT_EQ(text_of(file), "0123456789") << "it is as large as it may be, and no larger";
  say(rank, "a");
  rotation.look();
  EXPECT_EQ(text_of(rotated_log(file)), "0123456789a");
  say(rank, "the second");
  EXPECT_EQ(text_of(file), "the second");
  say(rank, "...");
  rotation.look();
  EXPECT_EQ(text_of(rotated_log(file)), "the second...");
  EXPECT_EQ(text_of(file), "");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 2);
  close(rank);
}

TEST_F(RotationTest, AFloodStaysSmallAndLosesNoMoreThanTheMomentOfACut) {
  constexpr int64_t kMost = 100'000;
  LogRotation rotation(kMost, kNever);
  rotation.watch(file);
  const pid_t rank = fork();
  if (rank == 0) {
    const int fd = open_as_rank();
    for (int i = 0; i < 40'000; ++i) {
      const std::string line = "line " + std::to_string(1'000'000 + i) + "\n";
      if (write(fd, line.data(), line.size()) != std::ssize(line)) _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  while (waitpid(rank, &status, WNOHANG) == 0) rotation.look();
  rotation.look();
  EXPECT_EQ(status, 0);
  // What is left is whole lines of the end, in their order. A write that goes on during the cut may
  // leave a part of its line at the end of what is kept.
  int last = 0;
  for (const std::string& path : {rotated_log(file), file}) {
    std::istringstream lines(text_of(path));
    for (std::string line; std::getline(lines, line);) {
      if (lines.eof() && path != file) break;
      ASSERT_EQ(line.size(), 12u) << line;
      const int number = std::stoi(line.substr(5));
      EXPECT_GT(number, last);
      last = number;
    }
  }
  EXPECT_LE(size_of(file), kMost);
}

TEST_F(RotationTest, WithoutRoomForACopyTheLogIsCutAllTheSame) {
  LogRotation rotation(10, kNever);
  rotation.watch(file);
  const int rank = open_as_rank();
  std::ofstream(rotated_log(file)) << "older";
  say(rank, "longer than ten");
  fs::create_symlink("/dev/full", file + ".part");
  testing::internal::CaptureStderr();
  rotation.look();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("No space left on device"));
  EXPECT_EQ(text_of(file), "");
  EXPECT_FALSE(fs::exists(rotated_log(file)));
  say(rank, "longer than ten");
  fs::create_symlink("/dev/full", file + ".part");
  testing::internal::CaptureStderr();
  rotation.look();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "it was told";
  say(rank, "and on");
  EXPECT_EQ(text_of(file), "and on");
  close(rank);
}

TEST_F(RotationTest, AMirrorAndLastWordsGoOnBehindACut) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  LogMirror mirror(ends[1]);
  LogRotation rotation(10, kNever);
  rotation.watch(file);
  const int rank = open_as_rank();
  say(rank, "of an earlier attempt\n");
  const int64_t from = size_of(file);
  mirror.follow(0, file, from);
  say(rank, "one\ntwo\nthr");
  mirror.turn();
  say(rank, "ee\nfour\n");  // not seen before the cut
  rotation.look();
  say(rank, "five\n");
  mirror.turn();
  mirror.turn();
  std::string got(1000, '\0');
  got.resize(static_cast<size_t>(read(ends[0], got.data(), got.size())));
  EXPECT_EQ(got, "[rank 0] one\n[rank 0] two\n[rank 0] three\n[rank 0] four\n[rank 0] five\n");
  EXPECT_EQ(tail_of(file, from, 100), "five");
  close(rank);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(RotationTest, ADiskWithoutRoomEndsNoRankAndIsToldOnce) {
  PosixRanks ranks;
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    fs::remove(file);
    fs::create_symlink("/dev/full", file);
    RankStart start{.command = {"/bin/sh", "-c", "echo lost; exit 3"}, .flies = false};
    start.log_file = file;
    const auto rank = ranks.start(start);
    ASSERT_TRUE(rank) << rank.error().to_string();
    std::optional<ChildExit> end;
    while (!(end = ranks.poll_exit(*rank))) usleep(1000);
    EXPECT_EQ(end->exit_code, 3);
    ranks.forget(*rank);
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("the disk has no room for " + file));
  EXPECT_EQ(said.find("no room"), said.rfind("no room"));
}

TEST(LogBytesMax, IsANumberOfAMebibyteOrMore) {
  EXPECT_EQ(*log_bytes_max(nullptr), 256 << 20);
  EXPECT_EQ(*log_bytes_max(""), 256 << 20);
  EXPECT_EQ(*log_bytes_max("1048576"), 1 << 20);
  for (const char* text : {"1048575", "-1", "256Mi", "1e9", " 1048576", "99999999999999999999"}) {
    const auto bytes = log_bytes_max(text);
    ASSERT_FALSE(bytes) << text;
    EXPECT_THAT(bytes.error().to_string(), HasSubstr("RANK_LOG_MAX_BYTES"));
  }
}

}  // namespace
}  // namespace dsj::agent
