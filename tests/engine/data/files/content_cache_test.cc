#include "engine/data/files/content_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "common/files/memory_files.h"
#include "tests/engine/data/support.h"

namespace dsj::data {
namespace {

class KeptByContent : public testing::Test {
 protected:
  ContentCache cache(int64_t now, int64_t bytes_max = 100, int64_t kept_seconds = 0) {
    return {files_,
            {.directory = "/c",
             .suffix = ".text",
             .bytes_max = bytes_max,
             .kept_seconds = kept_seconds,
             .now = now,
             .process = 7}};
  }
  void store(ContentCache cache, const std::string& key, size_t bytes) {
    EXPECT_TRUE(files_.write_synced(cache.temporary(key).value(), std::string(bytes, 'x')));
    EXPECT_TRUE(cache.publish(key));
  }
  MemoryFiles files_;
};

TEST_F(KeptByContent, PublishedEntriesAreFound) {
  EXPECT_TRUE(cache(1).find("a").empty()) << "there is no directory";
  store(cache(1), "a", 10);
  store(cache(2), "a", 10);
  EXPECT_EQ(cache(3).find("a"),
            (std::vector<std::string>{"/c/000000000001-a.text", "/c/000000000002-a.text"}));
  EXPECT_TRUE(cache(3).find("b").empty());
}

TEST_F(KeptByContent, TheOldestAreRemovedWhenSpaceRunsOut) {
  EXPECT_TRUE(files_.write_synced("/other.text", "stays"));
  store(cache(1), "a", 60);
  store(cache(2), "b", 60);
  EXPECT_TRUE(cache(3).find("a").empty());
  EXPECT_EQ(cache(3).find("b").size(), 1u);
  EXPECT_TRUE(files_.write_synced("/c/someone's file", std::string(500, 'x')));
  store(cache(3), "c", 30);
  EXPECT_EQ(cache(3).find("b").size(), 1u) << "files of another kind do not count";
}

TEST_F(KeptByContent, YoungEntriesAreKeptAtAnySize) {
  store(cache(1000, 100, 60), "a", 90);
  store(cache(1050, 100, 60), "b", 90);
  EXPECT_EQ(cache(1050).find("a").size(), 1u) << "a run that is starting has both files";
  store(cache(1061, 100, 60), "c", 1);
  EXPECT_TRUE(cache(1061).find("a").empty());
  EXPECT_EQ(cache(1061).find("b").size(), 1u);
}

TEST(ProcessLock, OneAtATime) {
  TempDir dir;
  auto first = std::make_unique<ProcessLock>(dir.path() + "/x.lock");
  std::atomic<bool> got{false};
  std::jthread other([&] {
    const ProcessLock second(dir.path() + "/x.lock");
    got = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // nothing happens meanwhile
  EXPECT_FALSE(got);
  first.reset();
  other.join();
  EXPECT_TRUE(got);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path())) << "no lock file is left";
}

TEST(ProcessLock, WithoutADirectoryNoProcessWaits) {
  const ProcessLock first("/nowhere/x.lock"), second("/nowhere/x.lock");
  EXPECT_FALSE(std::filesystem::exists("/nowhere"));
}

}  // namespace
}  // namespace dsj::data
