#include "engine/data/row_sources.h"

#include <gtest/gtest.h>

#include "common/files/memory_files.h"

namespace dsj::data {
namespace {

using nlohmann::json;
using Paths = std::vector<std::string>;

class RowSources : public testing::Test {
 protected:
  RowSources() {
    for (const char* path :
         {"/d/b.jsonl", "/d/a.jsonl", "/d/README.md", "/d/.hidden", "/s/train-0.jsonl",
          "/s/test-0.jsonl", "/deep/x/1.json", "/deep/y/z/2.json", "/deep/y/n.csv", "/c/x,y.json"})
      write(path, "{}");
  }
  void write(const std::string& path, const std::string& text) {
    EXPECT_TRUE(files_.make_dirs(path_parent(path)));
    EXPECT_TRUE(files_.write_synced(path, text));
  }
  Paths files(const std::string& path, const std::string& dataset = "") {
    const auto found = row_files(files_, path, dataset);
    return found ? *found : Paths{found.error().to_string()};
  }
  std::string refusal(const std::string& path, const std::string& dataset = "") {
    const auto found = row_files(files_, path, dataset);
    EXPECT_FALSE(found) << path;
    return found ? "" : found.error().to_string();
  }
  MemoryFiles files_;
};

TEST_F(RowSources, FilesDirectoriesAndPatterns) {
  EXPECT_EQ(files("/d/a.jsonl"), Paths{"/d/a.jsonl"});
  EXPECT_EQ(files("/d/none.jsonl"), Paths{"/d/none.jsonl"});  // its reader says that it is missing
  EXPECT_EQ(files("/d"), (Paths{"/d/a.jsonl", "/d/b.jsonl"}));
  EXPECT_EQ(files("/d/*.jsonl"), (Paths{"/d/a.jsonl", "/d/b.jsonl"}));
  EXPECT_EQ(files("/d/[b]*"), Paths{"/d/b.jsonl"});
  EXPECT_EQ(files("/deep/**/*.json"), (Paths{"/deep/x/1.json", "/deep/y/z/2.json"}));
  EXPECT_EQ(files("/deep/?/*.csv"), Paths{"/deep/y/n.csv"});
}

TEST_F(RowSources, SeveralInTheOrderOfTheJob) {
  EXPECT_EQ(files("/d/b.jsonl,/d/a.jsonl"), (Paths{"/d/b.jsonl", "/d/a.jsonl"}));
  EXPECT_EQ(files("/c/x,y.json"), Paths{"/c/x,y.json"});
  const auto sources = row_sources(files_, "/d,/c/x,y.json", "", json());
  ASSERT_TRUE(sources);
  ASSERT_EQ(sources->size(), 2u);
  EXPECT_EQ((*sources)[0].files.size(), 2u);
}

TEST_F(RowSources, WhatCannotBeMeantIsRefused) {
  EXPECT_NE(refusal("/d/*.csv").find("finds no file"), std::string::npos);
  EXPECT_NE(refusal("/deep").find("name one of its directories: x, y"), std::string::npos);
  EXPECT_NE(refusal("/s").find("several splits: test-0.jsonl, train-0.jsonl"), std::string::npos);
  EXPECT_NE(refusal("/d", "alpaca").find("no directory with a dataset_info.json"),
            std::string::npos);
}

TEST_F(RowSources, LlamaFactorysList) {
  write("/lf/one.json", "[]");
  write("/lf/dataset_info.json", json{{"one", {{"file_name", "one.json"}}},
                                      {"two",
                                       {{"file_name", "/d"},
                                        {"columns", {{"prompt", "q"}, {"response", "a"}}}}},
                                      {"hub", {{"hf_hub_url", "x/y"}}},
                                      {"pairs", {{"file_name", "one.json"}, {"ranking", true}}}}
                                     .dump());
  EXPECT_EQ(files("/lf", "two, one"), (Paths{"/d/a.jsonl", "/d/b.jsonl", "/lf/one.json"}));
  const auto sources = row_sources(files_, "/lf", "one,two", json());
  ASSERT_TRUE(sources);
  EXPECT_TRUE((*sources)[0].names.empty());
  EXPECT_EQ((*sources)[1].names.own_name("output"), "a");
  EXPECT_NE(refusal("/lf", "on").find("did you mean \"one\""), std::string::npos)
      << refusal("/lf", "on");
  EXPECT_NE(refusal("/lf", "hub").find("nothing is downloaded"), std::string::npos);
  EXPECT_NE(refusal("/lf", "pairs").find("preference"), std::string::npos);
  EXPECT_NE(refusal("/lf").find("name those to train on by dataset: one, pairs, two"),
            std::string::npos);
}

}  // namespace
}  // namespace dsj::data
