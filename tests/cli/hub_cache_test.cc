#include "cli/hub_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;

struct HubCacheTest : testing::Test {
  fs::path folder = fs::temp_directory_path() / ("dsj-hub-" + std::to_string(getpid()));
  void SetUp() override { fs::create_directories(folder); }
  void TearDown() override { fs::remove_all(folder); }
  void write(const fs::path& path, const std::string& text) {
    fs::create_directories((folder / path).parent_path());
    std::ofstream(folder / path) << text;
  }
  Result<std::string> find(const std::string& name) { return find_model(name, folder); }
};

TEST_F(HubCacheTest, DirectoryWithAConfig) {
  write("model/config.json", "{}");
  EXPECT_EQ(find(folder / "model").value(), folder / "model");
  EXPECT_EQ(find((folder / "model/../model").string() + "/./").value(),
            (folder / "model/").string());
}

TEST_F(HubCacheTest, SnapshotOfMain) {
  const fs::path base = "models--Qwen--Qwen2-0.5B";
  write(base / "snapshots/aaa/config.json", "{}");
  write(base / "snapshots/bbb/config.json", "{}");
  EXPECT_FALSE(find("Qwen/Qwen2-0.5B")) << "two and no refs/main";
  write(base / "refs/main", "bbb\n");
  EXPECT_EQ(find("Qwen/Qwen2-0.5B").value(), folder / base / "snapshots/bbb");
}

TEST_F(HubCacheTest, OnlySnapshotWithoutRefs) {
  write("models--gpt2/snapshots/aaa/config.json", "{}");
  EXPECT_EQ(find("gpt2").value(), folder / "models--gpt2/snapshots/aaa");
}

TEST_F(HubCacheTest, WhatIsMissingIsSaid) {
  auto error = find("Qwen/None");
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error().kind, ErrorKind::BadInput);
  EXPECT_EQ(error.error().hint, "download it first: hf download Qwen/None");
  EXPECT_NE(error.error().message.find(folder.string()), std::string::npos);

  fs::create_directories(folder / "empty");
  error = find(folder / "empty");
  EXPECT_NE(error.error().message.find("no config.json"), std::string::npos);
  write("file", "");
  EXPECT_NE(find(folder / "file").error().message.find("found a file"), std::string::npos);
  EXPECT_NE(find("/no/such/model").error().message.find("no such directory"), std::string::npos);
}

TEST_F(HubCacheTest, CacheFollowsTheEnvironment) {
  setenv("HOME", "/home/u", 1);
  unsetenv("HF_HOME");
  unsetenv("HF_HUB_CACHE");
  EXPECT_EQ(hub_cache_directory(), "/home/u/.cache/huggingface/hub");
  setenv("HF_HOME", "/hf", 1);
  EXPECT_EQ(hub_cache_directory(), "/hf/hub");
  setenv("HF_HUB_CACHE", "/cache", 1);
  EXPECT_EQ(hub_cache_directory(), "/cache");
}

}  // namespace
}  // namespace dsj::cli
