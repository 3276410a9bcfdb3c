#include "cli/check/hub_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <tuple>

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

TEST_F(HubCacheTest, TheErrorSaysWhatIsMissing) {
  auto error = find("Qwen/None");
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error().kind, ErrorKind::BadInput);
  EXPECT_TRUE(error.error().hint.starts_with("download it first: hf download Qwen/None"));
  EXPECT_NE(error.error().message.find(folder.string()), std::string::npos);

  fs::create_directories(folder / "empty");
  error = find(folder / "empty");
  EXPECT_NE(error.error().message.find("no config.json"), std::string::npos);
  write("file", "");
  EXPECT_NE(find(folder / "file").error().message.find("found a file"), std::string::npos);
  EXPECT_NE(find("/no/such/model").error().message.find("no such directory"), std::string::npos);
}

/// The path of a model's folder in a cache, as users copy it.
TEST_F(HubCacheTest, AModelsFolderOfTheCacheLeadsToItsSnapshot) {
  write("models--gpt2/snapshots/aaa/config.json", "{}");
  EXPECT_EQ(find(folder / "models--gpt2").value(), folder / "models--gpt2/snapshots/aaa");
}

/// For directories that users name by mistake, the message says what they are and what to do.
TEST_F(HubCacheTest, ErrorsSayWhatOtherDirectoriesAre) {
  write("adapter/adapter_config.json", "{}");
  write("out/model/config.json", "{}");
  write("tuned/model/adapter_config.json", "{}");
  write("trainer/checkpoint-900/config.json", "{}");
  write("trainer/checkpoint-1000/config.json", "{}");
  write("nested/Qwen2-0.5B/config.json", "{}");
  write("gguf/model.gguf", "");
  write("meta/consolidated.00.pth", "");
  write("zero/latest", "global_step5");
  write("tag/mp_rank_00_model_states.pt", "");
  write("step/manifest.json", "{}");
  for (const auto& [name, what, hint] :
       {std::tuple{"adapter", "a LoRA adapter", "dsj merge --adapter"},
        {"out", "output directory of a run", "out/model"},
        {"tuned", "output directory of a run", "tuned/model"},
        {"trainer", "checkpoints of Trainer's", "trainer/checkpoint-1000"},
        {"nested", "no config.json", "nested/Qwen2-0.5B"},
        {"gguf", "GGUF", "safetensors"},
        {"meta", "Meta's own form", "Hugging Face's form"},
        {"zero", "checkpoint of DeepSpeed's", "--to fp32"},
        {"tag", "checkpoint of DeepSpeed's", "--to fp32"},
        {"step", "checkpoint of a run", "OUTPUT/model"}}) {
    const auto error = find(folder / name);
    ASSERT_FALSE(error) << name;
    EXPECT_NE(error.error().message.find(what), std::string::npos) << error.error().to_string();
    EXPECT_NE(error.error().hint.find(hint), std::string::npos) << error.error().to_string();
  }
}

TEST_F(HubCacheTest, CacheFollowsTheEnvironment) {
  for (const char* name : {"HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "XDG_CACHE_HOME"})
    unsetenv(name);
  setenv("HOME", "/home/u", 1);
  unsetenv("HF_HOME");
  unsetenv("HF_HUB_CACHE");
  EXPECT_EQ(hub_cache_directory(), "/home/u/.cache/huggingface/hub");
  setenv("XDG_CACHE_HOME", "/xdg", 1);
  EXPECT_EQ(hub_cache_directory(), "/xdg/huggingface/hub");
  setenv("HF_HOME", "~/hf", 1);
  EXPECT_EQ(hub_cache_directory(), "/home/u/hf/hub");
  setenv("HF_HOME", "/hf", 1);
  EXPECT_EQ(hub_cache_directory(), "/hf/hub");
  setenv("TRANSFORMERS_CACHE", "/old", 1);
  EXPECT_EQ(hub_cache_directory(), "/old");
  setenv("HUGGINGFACE_HUB_CACHE", "/older", 1);
  EXPECT_EQ(hub_cache_directory(), "/older");
  setenv("HF_HUB_CACHE", "/cache", 1);
  EXPECT_EQ(hub_cache_directory(), "/cache");
}

}  // namespace
}  // namespace dsj::cli
