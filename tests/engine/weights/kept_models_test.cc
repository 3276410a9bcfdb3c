#include "engine/weights/kept_models.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "common/files/memory_files.h"
#include "engine/weights/export_record.h"

namespace dsj::weights {
namespace {

constexpr char kModels[] = "out/models";

std::string path_of(int64_t step) {
  return path_join(kModels, kept_model_name(step));
}

/// An export as ModelExport::publish() leaves it.
void publish(Files& files, int64_t step) {
  const std::string target = path_of(step), staging = hidden_beside(target, ".staging");
  ASSERT_TRUE(files.make_dirs(staging));
  ASSERT_TRUE(files.write_synced(path_join(staging, "model.safetensors"), std::to_string(step)));
  ASSERT_TRUE(record_export(files, staging, target));
  ASSERT_TRUE(files.rename(staging, target));
}

/// Whatever lies there, only exports go, the oldest first, and only as many as are too many.
TEST(KeptModels, OnlyTheOldestOwnOnesGo) {
  std::mt19937 draw(9);
  for (int round = 0; round < 200; ++round) {
    MemoryFiles files;
    ASSERT_TRUE(files.make_dirs(kModels));
    std::map<int64_t, bool> is_own;
    const auto count = 1 + draw() % 7;
    while (is_own.size() < count) {
      const int64_t step = 1 + draw() % 40;
      if (is_own.contains(step)) continue;
      const int kind = draw() % 4;
      is_own[step] = kind > 1;
      if (kind == 0) {  // somebody's
        ASSERT_TRUE(files.make_dirs(path_of(step)));
        ASSERT_TRUE(files.write_synced(path_join(path_of(step), "mine"), "x"));
        continue;
      }
      publish(files, step);
      if (kind == 1) {  // somebody added to it
        ASSERT_TRUE(files.write_synced(path_join(path_of(step), "notes.md"), "x"));
      }
    }
    for (const char* other : {"checkpoint-", "checkpoint-07", "checkpoint-x", "llama"})
      ASSERT_TRUE(files.make_dirs(path_join(kModels, other)));
    auto newest = is_own.begin();
    std::advance(newest, draw() % is_own.size());
    const int64_t limit = draw() % 5;
    const auto warnings = prune_models(files, kModels, limit, newest->first);
    std::map<int64_t, bool> expected;  // step: stays
    auto left = std::ssize(is_own);
    size_t told = 0;
    for (const auto& [step, own] : is_own) {
      const bool too_many = limit > 0 && left > limit && step != newest->first;
      expected[step] = !(too_many && own);
      told += too_many && !own;
      left -= too_many;
    }
    for (const auto& [step, stays] : expected) {
      EXPECT_EQ(files.exists(path_of(step)).value(), stays) << step;
      EXPECT_EQ(files.exists(export_record_path(path_of(step))).value(),
                stays && files.exists(path_join(path_of(step), "model.safetensors")).value());
    }
    EXPECT_EQ(warnings.size(), told);
    for (const char* other : {"checkpoint-", "checkpoint-07", "checkpoint-x", "llama"})
      EXPECT_TRUE(files.exists(path_join(kModels, other)).value());
  }
}

TEST(KeptModels, WhatADeadExportLeftGoes) {
  MemoryFiles files;
  EXPECT_TRUE(clear_dead_models(files, kModels).empty()) << "there is no directory";
  publish(files, 4);
  ASSERT_TRUE(files.make_dirs(path_join(kModels, ".checkpoint-6.staging")));
  ASSERT_TRUE(files.make_dirs(path_join(kModels, ".cache")));
  EXPECT_TRUE(clear_dead_models(files, kModels).empty());
  EXPECT_FALSE(files.exists(path_join(kModels, ".checkpoint-6.staging")).value());
  EXPECT_TRUE(files.exists(path_join(kModels, ".cache")).value());
  EXPECT_TRUE(files.exists(path_of(4)).value());
}

}  // namespace
}  // namespace dsj::weights
