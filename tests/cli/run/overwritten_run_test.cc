#include "cli/run/overwritten_run.h"

#include <gtest/gtest.h>

#include "common/files/memory_files.h"
#include "engine/weights/export_record.h"

namespace dsj::cli {
namespace {

class OverwrittenRun : public testing::Test {
 protected:
  using Names = std::vector<std::string>;
  void SetUp() override {
    for (const char* directory :
         {"/out", "/out/checkpoints", "/out/checkpoints/step-3", "/out/checkpoints/damaged-step-2",
          "/out/logs", "/out/.dsj", "/out/.model.staging"})
      ASSERT_TRUE(files_.make_dir(directory));
    for (const char* path :
         {"/out/checkpoints/step-3/manifest.json", "/out/checkpoints/step-3/rank-00000.bin",
          "/out/checkpoints/damaged-step-2/rank-00000.json", "/out/checkpoints/attempt",
          "/out/checkpoints/ended", "/out/metrics.jsonl", "/out/status.yaml",
          "/out/logs/rank-0.log", "/out/logs/agent-0.log", "/out/.dsj/lock",
          "/out/.model.staging/config.json"})
      put(path);
    ASSERT_TRUE(weights::record_export(files_, "/out/.model.staging", "/out/model"));
    ASSERT_TRUE(files_.rename("/out/.model.staging", "/out/model"));
  }
  void put(const std::string& path, const std::string& text = "x") {
    ASSERT_TRUE(files_.write_synced(path, text));
  }
  Names names(const std::string& directory) {
    Names all;
    const auto entries = files_.list_dir(directory);
    for (const DirEntry& entry : *entries) all.push_back(entry.name);
    return all;
  }
  MemoryFiles files_;
};

TEST_F(OverwrittenRun, IsMovedAsideAndRemovedLater) {
  EXPECT_EQ(set_run_aside(files_, "/out"), true);
  EXPECT_EQ(names("/out"), (Names{".dsj", ".dsj-overwritten", "checkpoints", "logs"}));
  EXPECT_EQ(names("/out/checkpoints"), Names{".dsj-overwritten"});
  EXPECT_EQ(names("/out/checkpoints/.dsj-overwritten"),
            (Names{"attempt", "damaged-step-2", "ended", "step-3"}));
  EXPECT_EQ(names("/out/.dsj-overwritten"),
            (Names{".model.export.json", "metrics.jsonl", "model", "status.yaml"}));
  put("/out/metrics.jsonl");  // the new run's
  EXPECT_EQ(remove_overwritten(files_, "/out"), Names{});
  EXPECT_EQ(names("/out"), (Names{".dsj", "checkpoints", "logs", "metrics.jsonl"}));
  EXPECT_EQ(names("/out/checkpoints"), Names{});
  EXPECT_EQ(names("/out/logs"), Names{});
  EXPECT_EQ(remove_overwritten(files_, "/out"), Names{}) << "nothing is left";
}

TEST_F(OverwrittenRun, FilesThatNoRunWroteAreNotMoved) {
  put("/out/notes.txt");
  put("/out/logs/mine.txt");
  put("/out/checkpoints/README.md");
  put("/out/checkpoints/step-3/mine.txt", "mine");
  EXPECT_EQ(set_run_aside(files_, "/out"), true);
  put("/out/.dsj-overwritten/model/edited.json");
  const Names warnings = remove_overwritten(files_, "/out");
  EXPECT_GE(warnings.size(), 2u);
  EXPECT_TRUE(*files_.exists("/out/notes.txt"));
  EXPECT_TRUE(*files_.exists("/out/logs/mine.txt"));
  EXPECT_TRUE(*files_.exists("/out/checkpoints/README.md"));
  EXPECT_EQ(files_.read_all("/out/checkpoints/.dsj-overwritten/kept-step-3/mine.txt"), "mine");
  EXPECT_TRUE(*files_.exists("/out/.dsj-overwritten/model/edited.json"));
}

TEST_F(OverwrittenRun, TheRunBeforeAFailedStartIsKept) {
  EXPECT_EQ(set_run_aside(files_, "/out"), true);
  put("/out/metrics.jsonl", "of the failed start");
  EXPECT_EQ(set_run_aside(files_, "/out"), true);
  EXPECT_TRUE(*files_.exists("/out/checkpoints/.dsj-overwritten/step-3"));
  EXPECT_EQ(files_.read_all("/out/.dsj-overwritten-2/metrics.jsonl"), "of the failed start");
  EXPECT_EQ(remove_overwritten(files_, "/out"), Names{});
  EXPECT_EQ(names("/out"), (Names{".dsj", "checkpoints", "logs"}));
}

TEST_F(OverwrittenRun, WithoutAnEarlierRunNothingIsMoved) {
  ASSERT_TRUE(files_.make_dir("/empty"));
  EXPECT_EQ(set_run_aside(files_, "/empty"), false);
  EXPECT_EQ(set_run_aside(files_, "/none"), false);
  EXPECT_EQ(names("/empty"), Names{});
}

}  // namespace
}  // namespace dsj::cli
