// A rank's scratch directory: what is left behind goes, what is in use stays, wrong paths are
// named.
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/aio/scratch.h"

namespace dsj::aio {
namespace {

namespace fs = std::filesystem;
constexpr char kKey[] = "zero_optimization.offload_optimizer.nvme_path";

class ScratchTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "dsj_scratch_" + std::to_string(getpid());
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(root_))
      names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }
  /// A directory as a killed process leaves it: files there, the lock not held.
  void leave(const std::string& name) {
    fs::create_directories(root_ + "/" + name);
    std::ofstream(root_ + "/" + name + "/lock");
    std::ofstream(root_ + "/" + name + "/optimizer.swap") << "data";
  }
  std::string root_;
};

TEST_F(ScratchTest, HoldsFilesAndRemovesThemAtTheEnd) {
  {
    const auto scratch = Scratch::make(root_, {"my job/1", 3, 2}, kKey);
    ASSERT_TRUE(scratch) << scratch.error().to_string();
    EXPECT_EQ((*scratch)->path(), root_ + "/dsj_my-job-1_3_2");
    const auto created = (*scratch)->create("optimizer.swap", 4 * kAlign, {});
    ASSERT_TRUE(created) << created.error().to_string();
    EXPECT_EQ(fs::file_size((*scratch)->path() + "/optimizer.swap"), 4u * kAlign);
  }
  EXPECT_EQ(left(), std::vector<std::string>{});
}

TEST_F(ScratchTest, RemovesWhatDeadAttemptsLeftAndNothingElse) {
  leave("dsj_job_1_0");
  leave("dsj_job_2_7");
  leave("dsj_job_3_1");                            // this attempt: a rank that is just starting
  leave("dsj_job_4_0");                            // of a run into an output directory that is gone
  leave("dsj_job_other_1_0");                      // another job's
  fs::create_directories(root_ + "/dsj_job_1_1");  // no lock file: not surely ours
  const auto scratch = Scratch::make(root_, {"job", 3, 0}, kKey);
  ASSERT_TRUE(scratch) << scratch.error().to_string();
  EXPECT_EQ(left(), (std::vector<std::string>{"dsj_job_1_1", "dsj_job_3_0", "dsj_job_3_1",
                                              "dsj_job_other_1_0"}));
  EXPECT_EQ((*scratch)->warnings().size(), 3u);
  EXPECT_NE((*scratch)->warnings()[0].find("left by a process that is dead"), std::string::npos);
}

TEST_F(ScratchTest, AttemptsThatStartTogetherAllGetADirectoryThatTheyHold) {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread> starts;
    std::vector<std::unique_ptr<Scratch>> made(4);
    for (int attempt = 1; attempt <= 4; ++attempt) {
      starts.emplace_back([&, attempt] {
        auto scratch = Scratch::make(root_, {"job", attempt, 0}, kKey);
        if (scratch) made[size_t(attempt) - 1] = std::move(*scratch);
      });
    }
    for (auto& start : starts) start.join();
    for (int attempt = 1; attempt <= 4; ++attempt) {
      ASSERT_TRUE(made[size_t(attempt) - 1]) << attempt;
      EXPECT_TRUE(fs::exists(made[size_t(attempt) - 1]->path() + "/lock")) << attempt;
    }
  }
}

TEST_F(ScratchTest, AnAttemptThatStillLivesKeepsItsFiles) {
  leave("dsj_job_1_0");
  // Held by another process, as a lock of this one would not stand in its own way.
  int ready[2], go[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(go), 0);
  const std::string lock = root_ + "/dsj_job_1_0/lock";
  const pid_t child = fork();
  if (child == 0) {
    const int held = open(lock.c_str(), O_RDWR);
    char byte = flock(held, LOCK_EX | LOCK_NB) == 0 ? 'y' : 'n';
    _exit(write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) >= 0 ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  const auto second = Scratch::make(root_, {"job", 2, 0}, kKey);
  EXPECT_TRUE(second);
  EXPECT_TRUE(fs::exists(root_ + "/dsj_job_1_0/optimizer.swap"));
  const auto same = Scratch::make(root_, {"job", 1, 0}, kKey);
  ASSERT_FALSE(same);
  EXPECT_EQ(same.error().kind, ErrorKind::Environment);
  EXPECT_NE(same.error().message.find("in use by another process"), std::string::npos);
  EXPECT_EQ(write(go[1], &byte, 1), 1);
  waitpid(child, nullptr, 0);
  for (const int fd : {ready[0], ready[1], go[0], go[1]}) close(fd);
}

TEST_F(ScratchTest, AMissingLastComponentIsMadeAndSaid) {
  {
    const auto scratch = Scratch::make(root_ + "/nvme", {"job", 1, 0}, kKey);
    ASSERT_TRUE(scratch) << scratch.error().to_string();
    ASSERT_EQ((*scratch)->notes().size(), 1u);
    EXPECT_EQ((*scratch)->notes()[0], "made the directory " + root_ + "/nvme");
  }
  EXPECT_FALSE(fs::exists(root_ + "/nvme"));
}

TEST_F(ScratchTest, WrongPathsNameTheKey) {
  std::ofstream(root_ + "/file") << "x";
  for (const auto& path : {std::string(), root_ + "/no/such", root_ + "/file", root_ + "/file/a"}) {
    const auto scratch = Scratch::make(path, {"job", 1, 0}, kKey);
    ASSERT_FALSE(scratch) << path;
    EXPECT_EQ(scratch.error().kind, ErrorKind::BadInput) << path;
    EXPECT_EQ(scratch.error().where, kKey);
    EXPECT_NE(scratch.error().message.find(path), std::string::npos);
  }
}

TEST_F(ScratchTest, AFullDiskNamesTheKeyThePathAndTheBytes) {
  const auto scratch = Scratch::make(root_, {"job", 1, 0}, kKey);
  ASSERT_TRUE(scratch);
  const auto created = (*scratch)->create("optimizer.swap", int64_t{1} << 55, {});
  ASSERT_FALSE(created);
  EXPECT_EQ(created.error().kind, ErrorKind::Environment);
  const std::string text = created.error().to_string();
  for (const std::string& part : {std::string(kKey), (*scratch)->path() + "/optimizer.swap",
                                  std::to_string(int64_t{1} << 55)})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace
}  // namespace dsj::aio
